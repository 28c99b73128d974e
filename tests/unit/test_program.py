"""What the components of one program share."""

from __future__ import annotations

import asyncio

from pulumi_trainer.program.session import Program


def test_the_first_job_is_registered_before_the_last_is_rendered() -> None:
    program, told = Program(), []  # type: tuple[Program, list[str]]

    async def job(number: int) -> None:
        await program.await_turn()
        told.append(f"rendered {number}")
        for _ in range(5):  # what a registration awaits
            await asyncio.sleep(0)
        told.append(f"registered {number}")

    async def jobs() -> None:
        await asyncio.gather(*(job(number) for number in range(20)))

    asyncio.run(jobs())
    assert [t for t in told if "rendered" in t] == [f"rendered {number}" for number in range(20)]
    assert told.index("registered 0") < told.index("rendered 5")


def test_a_job_that_waits_for_an_output_holds_nobody_up() -> None:
    program, told = Program(), []  # type: tuple[Program, list[str]]

    async def jobs() -> None:
        output: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def first() -> None:
            await program.await_turn()
            await output
            told.append("first")

        async def second() -> None:
            await program.await_turn()
            told.append("second")
            output.set_result(None)

        await asyncio.wait_for(asyncio.gather(first(), second()), 10)

    asyncio.run(jobs())
    assert told == ["second", "first"]
