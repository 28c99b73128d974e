"""Writes the text as bytes to tokens.bin, which is not in git."""

from pathlib import Path

here = Path(__file__).parent


def prepare() -> Path:
    tokens = here / "tokens.bin"
    tokens.write_bytes((here / "input.txt").read_bytes())
    return tokens


if __name__ == "__main__":
    print(prepare())
