"""Detection of plain-text secrets in variables, arguments, commands, URLs, annotations and func_args.

A secret shows in the name of its variable or flag, as credentials in a URL, or in the shape of a well-known token. Shapes are the
rules of detect-secrets, and `_PREFIXES` for tokens that the pinned release does not know. Every plan is checked, so one
expression accepts most values, and the library is loaded only for values that could be a token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pulumi_trainer.provider.kubernetes.errors import Problem

_WHY = "is a plain-text secret; it would be readable in plan and state"
_HINT = "pass a secret in env: pulumi.Config().require_secret(...), or valueFrom.secretKeyRef"
_PIP_HINT = f"{_HINT}; pip reads PIP_INDEX_URL there"
"""For an index or a package with credentials in its URL."""

_NAMES = re.compile(
    r"(PASSWORD|PASSWD|PASSPHRASE|SECRET)$"
    r"|(^|_)((DB|PG|SQL|MYSQL|USER|ROOT|ADMIN|SMTP|MAIL|REDIS|MONGO)?PASS|PWD|PW|CREDS?|CREDENTIALS?|BEARER|AUTHORIZATION"
    r"|AUTH_CONFIG|CONNECTION_STRING|(AUTH|ACCESS|API|HF|GITHUB|GH|GITLAB|GIT|REFRESH|BOT|DEPLOY|SERVICE)?TOKEN"
    r"|API_?KEY|((SECRET|ACCESS|PRIVATE|SIGNING|ENCRYPTION|ACCOUNT|SERVICE|AUTH|MASTER|APP|SSH|GPG|DEPLOY|SHARED_ACCESS|AZURE_STORAGE"
    r"|KAGGLE|WANDB|COMET|NEPTUNE|CLEARML|OPENAI|ANTHROPIC|COHERE|MISTRAL|GROQ|GEMINI|REPLICATE|TOGETHER|PINECONE|LANGSMITH|HF"
    r"|HUGGINGFACE|GITHUB|GITLAB|SENDGRID|STRIPE|DATADOG|DD)_?KEY)"
    r"|(GITHUB|GH|GIT|GITLAB|BITBUCKET|AZURE|AZURE_DEVOPS(_EXT)?|ADO|VSTS|DATABRICKS|SNOWFLAKE|AIRTABLE|JIRA|CONFLUENCE|ATLASSIAN|DOCKER"
    r"|HF|HUGGING_?FACE|NPM|PYPI|LINEAR|FIGMA|NOTION|ASANA|QUAY|MY|CI|BOT|SERVICE|READ|WRITE)_PAT)$"
)
_SUFFIXES = frozenset((
    "READ", "WRITE", "RO", "RW", "PROD", "PRD", "PRODUCTION", "LIVE", "DEV", "DEVELOPMENT", "TEST", "TESTING", "STAGING", "STAGE",
    "STG", "QA", "UAT", "SANDBOX", "DEMO", "LOCAL", "CI", "OLD", "NEW", "PRIMARY", "SECONDARY", "BACKUP", "CURRENT", "PREVIOUS",
    "MAIN", "TEAM", "ORG", "SHARED", "PERSONAL", "PLAIN", "RAW", "B64", "BASE64", "PEM",
))  # fmt: skip
"""What follows the name of a secret: a stage, a form."""
_NUMBER = re.compile("V?[0-9]{1,3}")
_OF_A_SERVICE = r"(AUTH|ACCESS|API|HF|GITHUB|GH|GITLAB|GIT|REFRESH|BOT|DEPLOY|SERVICE)_?TOKEN"
"""Name of a token that is not one of a text."""
_PLURAL = re.compile(rf"(PASSWORD|PASSWD|PASSPHRASE|SECRET|{_OF_A_SERVICE}|KEY|_PAT)S$")
_LONG_WORD = 8
"""Characters of a word that may be a secret without a name that is sure."""
_IN_QUERIES = re.compile(r"[?&;]([\w.-]{1,64})=([^&#;\s'\"]{4,})")
_SIGNATURES = re.compile(r"(^|_)(SIG|SIGNATURE)$")
_IN_MAPPINGS = re.compile(r"[\"']([\w.-]{1,64})[\"']\s{0,8}:\s{0,8}[\"']([^\"']{4,})[\"']")
_LOGIN = re.compile(r"[^\s:/@]{1,256}:([^\s:/@]{4,})")
"""user:password, as `curl -u` takes it."""
_MIXED = re.compile(r"(?=[^\s]{0,256}[0-9])(?=[^\s]{0,256}[A-Za-z]).*[^,]", re.DOTALL)
"""Contains a digit and a letter, unlike `token=tok` in a program, a variable, or a group of users."""
_LONG_NUMBER = 8
"""Digits of a number that may be a secret; ids of tokens have fewer."""
_WORDS_OF_A_VOCABULARY = re.compile(
    r"(^|_)(PAD|BOS|EOS|UNK|SEP|CLS|CLASS|MASK|EOD|BOI|EOI|SPECIAL|EXTRA|ADDED|RESERVED|UNUSED|CONTROL|NEW|STOP|START|END|IMAGE|VIDEO|AUDIO|PREFIX|SUFFIX|MIDDLE|DECODER|TRIGGER)_TOKEN$"
)
"""Names of tokens that a tokenizer has."""
_HARMLESS = re.compile(
    r"|true|false|none|null|yes|no|on|off|auto|default|required|optional|[-+.\d]{1,5}|[/~].*|file:.*|\$\(.*\)|\$\{.*\}|\$\w+|[<\[{(*].*"
    r"|(mean|max|first|last|cls|eos|bos|pad|none)",
    re.IGNORECASE | re.DOTALL,
)
"""Values that are not secret under any name: switches, small numbers, paths, references, placeholders."""

_URL = re.compile(r"://(?P<user>[^\s/?#@:'\"]*)(?::(?P<password>[^\s/?#'\"]*))?@")
_RUN = re.compile(r"[A-Za-z0-9_.:/+=%-]{20,}")
"""A possible token."""
_LONGEST_RUN = 4096
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----|PuTTY-User-Key-File-\d")
SHAPES = (
    r"_authToken=[\w-]{20,}",
    r"hf_(?:[A-Za-z]{34}\b|(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,})",
    r"hf_oauth_[A-Za-z0-9._-]{20,}",
    r"api_org_[A-Za-z0-9]{34}",
    r"github_pat_\w{22,}",
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"gl(?:pat|dt|rt|cbt|ft|agent|ptt|imt|oas|soat)-[\w.-]{20,}",
    r"sk-(?:ant|proj|svcacct|admin|or-v1|lf)-[\w-]{20,}",
    r"sk-[A-Za-z0-9]{32,}",
    r"nvapi-[\w-]{40,}",
    r"gsk_[A-Za-z0-9]{40,}",
    r"r8_[A-Za-z0-9]{30,}",
    r"AIza[\w-]{35}",
    r"ya29\.[\w-]{20,}",
    r"GOCSPX-[\w-]{20,}",
    r"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}",
    r"LTAI[A-Za-z0-9]{16,}",
    r"dapi[0-9a-f]{32}",
    r"dkea[0-9a-f]{32}",
    r"do[opr]_v1_[0-9a-f]{64}",
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-Ag[\w-]{50,}",
    r"dckr_(?:pat|oat)_[\w-]{20,}",
    r"hv[sbr]\.[\w-]{24,}",
    r"pul-[0-9a-f]{40}",
    r"tfp_[\w-]{30,}",
    r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}",
    r"xox[abeoprs](?:\.xox[bp])?-[\w-]{20,}",
    r"xapp-\d-[\w-]{20,}",
    r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}",
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{20,}",
    r"whsec_[A-Za-z0-9+/=]{30,}",
    r"SG\.[\w-]{20,}\.[\w-]{40,}",
    r"lin_api_[A-Za-z0-9]{40}",
    r"figd_[\w-]{40,}",
    r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}",
    r"AT[AC]TT3x[\w=-]{60,}",
    r"sq0(?:atp|csp)-[\w-]{22,}",
    r"tskey-[a-z]+-[\w-]{20,}",
    r"rubygems_[0-9a-f]{48}",
    r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    r"fly_pat_\w{30,}",
    r"glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}",
    r"glc_[A-Za-z0-9+/=]{32,}",
    r"NRAK-[A-Z0-9]{27}",
    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",
    r"ntn_[A-Za-z0-9]{40,}",
    r"secret_[A-Za-z0-9]{43}",
    r"sbp_[0-9a-f]{40}",
    r"pscale_(?:tkn|pw|oauth)_[\w.-]{32,}",
    r"dp\.(?:pt|st|ct)\.[\w-]{40,}",
    r"CCIPAT_[A-Za-z0-9]{22}_[0-9a-f]{40}",
    r"pplx-[A-Za-z0-9]{40,}",
    r"xai-[A-Za-z0-9]{60,}",
    r"tgp_v1_[\w-]{40,}",
    r"wandb_v1_[A-Za-z0-9]{20,}_[A-Za-z0-9]{40,}",
    r"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}",
    r"pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,}",
    r"hooks\.slack\.com/services/T\w{6,20}/B\w{6,20}/(?!X+\b)[A-Za-z0-9]{20,}",
    r"\d{8,10}:AA[\w-]{33}",
    r"discord(?:app)?\.com/api/webhooks/\d{15,}/[\w-]{30,}",
    r"IncomingWebhook/[0-9a-f]{32}",
    r"AccountKey=[A-Za-z0-9+/]{80,}=*",
    r"sig=[A-Za-z0-9%+/]{40,}(?:%3D|=)",
)
"""Tokens by their prefix. One without a digit must also look random, since a name in a program may begin like a token."""
_PREFIXES = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(SHAPES)})")
_JWT_BODY = re.compile(r"eyJ[\w-]{10,}")
_NOT_JWT = re.compile(r"[^\w-]")
_BASIC = re.compile(r"\b(?:Bearer|Basic|Token)\s+(?!\$)[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)
_KEY_OF_A_SERVICE = re.compile(
    r"(?:aws_secret_(?:access_)?key|wandb_api_key)(?:[\"']\]?)? {0,4}[:=] {0,4}[\"']?"
    r"(?=[A-Za-z/+]*[0-9])(?![A-Za-z0-9/+]*EXAMPLE)[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
    re.IGNORECASE,
)
"""A value without a shape of its own behind a telling name. The keys in the services' own documentation contain EXAMPLE."""
_PLUGINS = {
    "aws": "AWSKeyDetector", "azure_storage_key": "AzureStorageKeyDetector", "discord": "DiscordBotTokenDetector",
    "github_token": "GitHubTokenDetector", "gitlab_token": "GitLabTokenDetector", "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector", "slack": "SlackDetector", "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector", "telegram_token": "TelegramBotTokenDetector",
}  # fmt: skip
"""Module -> rule of detect-secrets. Those that take digests, high entropy or words of a text for secrets are left out, and
those that search a text again from each of its characters (JWT, npm, OpenAI): `_PREFIXES` has their shapes."""


def problems(value: Any, where: str) -> list[Problem]:
    """Return the plain-text secrets in a value of a document: a mapping, a list of EnvVars or of words, or a text.

    Args:
        value: The value; names of keys and variables count too, so `password: x` is found.
    """
    return [Problem(place, _WHY, _hint(place)) for place in dict.fromkeys(_places(value, where, ""))]


def _hint(place: str) -> str:
    if re.search("packages|requirements|index_urls", place):
        return _PIP_HINT
    return _HINT


def problems_of_source(text: Any, where: str) -> list[Problem]:
    """Return a problem if a program contains a token; names are not checked: `password` may be a function."""
    if isinstance(text, str) and is_token(text):
        return [Problem(where, _WHY, _HINT)]
    return []


def _places(value: Any, where: str, name: str) -> Iterator[str]:
    """Yield the paths of secrets in a value."""
    if isinstance(value, str):
        if _is_secret(name, value):
            yield where
    elif isinstance(value, int) and not isinstance(value, bool):
        if len(str(abs(value))) >= _LONG_NUMBER and _is_named_as_secret(name, str(value)):
            yield where
    elif isinstance(value, Mapping):
        yield from _places_in_mapping(value, where, name)
    elif isinstance(value, (list, tuple)):
        yield from _places_in_list(value, where, name)


def _places_in_mapping(value: Mapping[Any, Any], where: str, name: str) -> Iterator[str]:
    if isinstance(value.get("name"), str) and "value" in value:
        yield from _places(value["value"], where, value["name"])
        return
    for key, item in value.items():
        place = own = str(key)
        if where:
            place = f"{where}.{key}"
        if name and own.upper() in _SUFFIXES:
            own = f"{name}_{key}"
        yield from _places(item, place, own)


def _places_in_list(value: Sequence[Any], where: str, name: str) -> Iterator[str]:
    if _plain_name(name).endswith("AUTH") and len(value) == 2 and all(isinstance(item, str) for item in value):
        if not _HARMLESS.fullmatch(value[1]):
            yield f"{where}[1]"
        return
    inherited = name
    if _names_words(name):
        inherited = ""
    before = inherited
    if _is_pair(value):
        inherited = value[0]
    for index, item in enumerate(value):
        place = f"{where}[{index}]"
        if isinstance(item, Mapping) and isinstance(item.get("name"), str):
            variable = item["name"]
            place = f'{where}["{variable}"]'
        yield from _places(item, place, before)
        before = inherited
        if isinstance(item, str) and item.startswith("-") and "=" not in item:
            before = item


def _names_words(name: str) -> bool:
    """Return whether a list of this name has tokens of a text."""
    plain = _plain_name(name)
    return plain.endswith("TOKEN") and not re.search(f"{_OF_A_SERVICE}$", plain)


def _is_pair(value: Sequence[Any]) -> bool:
    """Return whether a list is the name of a secret and its value."""
    if len(value) != 2 or not all(isinstance(item, str) for item in value) or value[0].startswith("-"):
        return False
    is_named = _NAMES.search(_plain_name(value[0])) is not None
    return is_named and len(value[1]) >= _LONG_WORD and _MIXED.fullmatch(value[1]) is not None


@lru_cache(maxsize=4096)
def _is_secret(name: str, value: str) -> bool:
    if name and _is_named_as_secret(name, value):
        return True
    return _has_credentials(value) or _has_secret_parameters(value) or _has_secret_words(value) or is_token(value)


def _is_named_as_secret(name: str, value: str) -> bool:
    """Return whether a name indicates a secret: a variable, a key, or a flag such as --api-key."""
    name = _plain_name(name)
    if name == "U" or name.endswith("AUTH") or name == "USER":
        login = _LOGIN.fullmatch(value)
        return login is not None and _MIXED.fullmatch(login[1]) is not None and not _HARMLESS.fullmatch(login[1])
    if not _NAMES.search(name) or _WORDS_OF_A_VOCABULARY.search(name):
        return False
    if name.endswith("AUTH_CONFIG") and '"auth"' in value:
        return True
    return not _HARMLESS.fullmatch(value) and not (name.endswith("CONNECTION_STRING") and "://" in value)


def _plain_name(name: str) -> str:
    """Return a name in capitals with underscores, of one secret, and without what follows its name."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[-256:])).strip("_").upper()
    head, _, last = words.rpartition("_")
    while head and (last in _SUFFIXES or (head != "TOKEN" and _NUMBER.fullmatch(last))):
        words = head
        head, _, last = words.rpartition("_")
    if words[-1:].isdigit():
        words = re.sub(r"(?<!\ATOKEN)(?<![0-9])[0-9]{1,3}\Z", "", words)
    if words.endswith("S"):
        words = _PLURAL.sub(r"\1", words)
    return words


def _has_credentials(value: str) -> bool:
    """Return whether a text contains a URL with a password, or with a token in place of a user."""
    if "@" not in value or "://" not in value:
        return False
    for found in _URL.finditer(value):
        user, password = found["user"], found["password"]
        if password and not _HARMLESS.fullmatch(password):
            return True
        around = value[max(0, found.start() - 5) : found.start()], value[found.end() : found.end() + 64]
        if not password and (len(user) >= 20 or _is_token_of_index(user, *around)):
            return True
    return any(map(_has_password_with_slash, value.split()))


def _is_token_of_index(user: str, before: str, host: str) -> bool:
    """Return whether the user of a URL without a password is a token, as package indexes and git servers take one.

    Azure DevOps has the organization there.
    """
    sends_it = before.endswith(("http", "https")) and not re.match(r"(\w+\.)?dev\.azure\.com\b", host)
    return sends_it and len(user) >= _LONG_WORD and _MIXED.fullmatch(user) is not None and _is_literal(user)


def _has_password_with_slash(word: str) -> bool:
    """Return whether a URL has a password with an unescaped slash, which is neither a port nor a path after the host."""
    user, colon, password = word.partition("://")[2].rpartition("@")[0].partition(":")
    return (
        bool(colon) and not re.search("[/@]", user) and not re.match("[0-9]{1,5}/", password) and _is_literal(password)
    )


def _has_secret_parameters(value: str) -> bool:
    """Return whether the query of a URL, or a mapping in a text, assigns a secret to a name."""
    found: list[tuple[str, str]] = []
    if "://" in value or ";" in value:
        found = _IN_QUERIES.findall(value)
    if any(_SIGNATURES.search(_plain_name(name)) and _is_literal(given) for name, given in found):
        return True
    return any(_is_literal(g) and _is_named_as_secret(n, g) for n, g in (*found, *_IN_MAPPINGS.findall(value)))


def _has_secret_words(value: str) -> bool:
    """Return whether a command line assigns a secret to a flag, a variable or a header: --token X, --token=X, TOKEN=X, token=X1,
    X-Api-Key: X1, -u me:X1.
    """
    if len(value) > _LONGEST_COMMAND:
        return False
    before = ""
    for word in value.split():
        name, equals, given = word.partition("=")
        given, name = given.strip("\"'"), name.strip("\"'")
        if equals and _is_assigned(name, given):
            return True
        if before and _is_assigned(before, word.strip("\"'")):
            return True
        awaits_value = word.startswith("--") or name == "-u" or name.endswith(":")
        before = ""
        if awaits_value and not equals:
            before = name
    return False


def _is_assigned(name: str, given: str) -> bool:
    """Return whether a word of a command line is a secret.

    A word that follows neither a flag nor a variable may be an argument in a program; it must have a digit and a letter.
    """
    sure = _NAME.fullmatch(name) or name == "-u"
    if not sure and not (_WEAK_NAME.fullmatch(name) and _MIXED.fullmatch(given)):
        return False
    return _is_literal(given) and _is_named_as_secret(name, given)


_NAME = re.compile(r"--[A-Za-z][\w.-]*|[A-Z_][A-Z0-9_]*")
"""Name of a flag or a variable; `token=os.environ[...]` is an argument in a Python program."""
_WEAK_NAME = re.compile(r"[A-Za-z][\w.-]*:?")


def _is_literal(word: str) -> bool:
    return len(word) >= 4 and not re.search(r"[$(){}\[\]<>`]", word)


_LONGEST_COMMAND = 2**14


@lru_cache(maxsize=4096)
def is_token(text: str) -> bool:
    """Return whether a text contains a token of a well-known shape."""
    return holds_token(text)


def holds_token(text: str) -> bool:
    """Return whether a text holds a token; unlike `is_token`, this is not cached, for the text of a file."""
    if _BASIC.search(text) or _PRIVATE_KEY.search(text) or _KEY_OF_A_SERVICE.search(text):
        return True
    return any(_is_token(run[0][:_LONGEST_RUN]) for run in _RUN.finditer(text))


_DIGIT = re.compile("[0-9]")


def _is_token(run: str) -> bool:
    if any(_DIGIT.search(each[0]) or _looks_random(each[0]) for each in _PREFIXES.finditer(run)) or _has_jwt(run):
        return True
    if not any(_DIGIT.search(part) and _LETTER.search(part) for part in _PART.findall(run)):
        return False
    return any(any(rule.analyze_string(run)) for rule in _rules())


def _looks_random(token: str) -> bool:
    """Return whether the last letters of a token mix capitals with others; those of names and placeholders hardly do."""
    last = [each for each in token[-20:] if each.isalpha()]
    capitals = sum(map(str.isupper, last))
    return len(set(last)) >= _FEWEST_LETTERS and (token.isupper() or 4 <= capitals <= len(last) - 4)


_FEWEST_LETTERS = 8
"""Different letters of a random token; a placeholder such as AKIAXXXXXXXXXXXXXXXX has fewer."""


def _has_jwt(run: str) -> bool:
    """Return whether a text has two adjacent parts that begin like JSON in base64."""
    parts = run.split(".")
    for place, part in enumerate(parts[1:-1]):
        if not _JWT_BODY.fullmatch(part):
            continue
        header = _NOT_JWT.split(parts[place])[-1]
        if 0 <= header.find("eyJ") <= len(header) - 13:
            return True
    return False


_PART = re.compile(r"[A-Za-z0-9_-]{20,}")
_LETTER = re.compile("[G-Zg-z]")
"""A letter that no digest contains."""


@lru_cache(maxsize=1)
def _rules() -> tuple[Any, ...]:
    from importlib import import_module

    return tuple(
        getattr(import_module(f"detect_secrets.plugins.{module}"), name)() for module, name in _PLUGINS.items()
    )
