"""Secrets that somebody wrote in clear: 100 shapes of tokens are found, harmless values are not, and none is ever shown."""

# ruff: noqa: E501 (tables of shapes)

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import string
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pulumi_trainer.args import plaintext_secrets

_RANDOM = random.Random(11)
_LOWER, _UPPER, _HEX = string.ascii_lowercase, string.ascii_uppercase, "0123456789abcdef"
_WORD = string.ascii_letters + string.digits
_URLSAFE = _WORD + "-_"


def made(count: int, alphabet: str = _WORD) -> str:
    """Random characters with a digit and a letter among them: nothing that looks like a secret stands in this file."""
    return (
        "".join(_RANDOM.choice(alphabet) for _ in range(count - 2))
        + _RANDOM.choice("abcdef")
        + _RANDOM.choice("123456789")
    )


def letters(count: int, alphabet: str = string.ascii_letters) -> str:
    """Random characters without a digit, as one token in dozens to thousands has them by chance; those of hex digits cannot."""
    return "".join(_RANDOM.choice(alphabet) for _ in range(count))


def _jwt() -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT"}, {"sub": "1234567890"})]
    return ".".join([*(base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts), made(43, _URLSAFE)])


def _key(kind: str) -> str:
    return f"-----BEGIN {kind}" + f"PRIVATE KEY-----\n{made(64)}\n-----END {kind}PRIVATE KEY-----"


SHAPES: dict[str, str] = {
    "hugging face": "hf_" + made(34), "hugging face organisation": "hf_" + made(37),
    "github personal": "ghp_" + made(36), "github fine-grained": "github_pat_" + made(22) + "_" + made(59),
    "github oauth": "gho_" + made(36), "github user": "ghu_" + made(36), "github server": "ghs_" + made(36),
    "github refresh": "ghr_" + made(36), "gitlab": "glpat-" + made(20, _URLSAFE), "gitlab deploy": "gldt-" + made(20),
    "gitlab runner": "glrt-" + made(20), "gitlab ci": "glcbt-64_" + made(20), "gitlab feed": "glft-" + made(20),
    "gitlab agent": "glagent-" + made(50), "gitlab trigger": "glptt-" + made(40), "gitlab scim": "gloas-" + made(64),
    "aws access key": "AKIA" + made(16, _UPPER).upper(), "aws session key": "ASIA" + made(16, _UPPER).upper(),
    "google api": "AIza" + made(35, _URLSAFE), "google oauth": "ya29." + made(60, _URLSAFE),
    "google client secret": "GOCSPX-" + made(28, _URLSAFE), "openai old": "sk-" + made(48),
    "openai project": "sk-proj-" + made(60, _URLSAFE), "openai service": "sk-svcacct-" + made(60, _URLSAFE),
    "anthropic": "sk-ant-api03-" + made(90, _URLSAFE), "openrouter": "sk-or-v1-" + made(64, _HEX),
    "nvidia": "nvapi-" + made(64, _URLSAFE), "groq": "gsk_" + made(52), "replicate": "r8_" + made(37),
    "perplexity": "pplx-" + made(48), "xai": "xai-" + made(80), "together": "tgp_v1_" + made(43, _URLSAFE),
    "databricks": "dapi" + made(32, _HEX), "digitalocean": "dop_v1_" + made(64, _HEX),
    "digitalocean oauth": "doo_v1_" + made(64, _HEX), "npm": "npm_" + made(36),
    "npmrc": "//npm.example.com/:_authToken=" + str(uuid.UUID(int=_RANDOM.getrandbits(128), version=4)),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + made(80, _URLSAFE), "test pypi": "pypi-AgENdGVzdC5weXBpLm9yZw" + made(80, _URLSAFE),
    "docker hub": "dckr_pat_" + made(27, _URLSAFE), "docker organisation": "dckr_oat_" + made(27, _URLSAFE),
    "vault": "hvs." + made(90, _URLSAFE), "vault batch": "hvb." + made(120, _URLSAFE), "pulumi": "pul-" + made(40, _HEX),
    "terraform": made(14) + ".atlasv1." + made(64, _URLSAFE), "slack bot": "xoxb-123456789012-123456789012-" + made(24),
    "slack user": "xoxp-123456789012-123456789012-" + made(24), "slack app": "xapp-1-A0123-" + made(40),
    "slack hook": "https://hooks.slack.com/services/T" + made(8).upper() + "/B" + made(8).upper() + "/" + made(24),
    "shopify": "shpat_" + made(32, _HEX), "stripe": "sk_live_" + made(24), "stripe restricted": "rk_live_" + made(24),
    "stripe test": "sk_test_" + made(24), "sendgrid": "SG." + made(22) + "." + made(43), "linear": "lin_api_" + made(40),
    "figma": "figd_" + made(44, _URLSAFE), "postman": "PMAK-" + made(24, _HEX) + "-" + made(34, _HEX),
    "atlassian": "ATATT3x" + made(180, _URLSAFE) + "=1A2B3C4D", "square": "sq0atp-" + made(22, _URLSAFE),
    "square secret": "sq0csp-" + made(43, _URLSAFE), "tailscale": "tskey-auth-" + made(30), "rubygems": "rubygems_" + made(48, _HEX),
    "age": "AGE-SECRET-KEY-1" + made(58, _UPPER).upper(), "fly": "fly_pat_" + made(40), "grafana": "glsa_" + made(32) + "_" + made(8, _HEX),
    "grafana cloud": "glc_" + made(60), "new relic": "NRAK-" + made(27, _UPPER).upper(), "airtable": "pat" + made(14) + "." + made(64, _HEX),
    "notion": "ntn_" + made(46), "notion old": "secret_" + made(43), "supabase": "sbp_" + made(40, _HEX),
    "planetscale": "pscale_tkn_" + made(43, _URLSAFE), "doppler": "dp.pt." + made(43), "circleci": "CCIPAT_" + made(22) + "_" + made(40, _HEX),
    "discord": "M" + made(23) + "." + made(6) + "." + made(27), "telegram": "123456789:" + made(35, _URLSAFE),
    "alibaba": "LTAI" + made(20), "azure storage": "DefaultEndpointsProtocol=https;AccountKey=" + made(86) + "==;EndpointSuffix=x",
    "azure sas": "https://a.blob.core.windows.net/c?sv=2024-01-01&sig=" + made(43) + "%3D", "jwt": _jwt(),
    "rsa key": _key("RSA "), "ec key": _key("EC "), "ssh key": _key("OPENSSH "), "pkcs8 key": _key(""), "encrypted key": _key("ENCRYPTED "),
    "service account": json.dumps({"type": "service_account", "private_key": _key("")}),
    "bearer": "Authorization: Bearer " + made(40), "basic": "Authorization: Basic " + made(24),
    "index url": "https://user:pw@index.example.com/simple", "index token": f"https://{made(40)}@index.example.com/simple",
    "database": "postgresql://trainer:" + made(12) + "@db:5432/metrics", "redis": "redis://:" + made(12) + "@cache:6379/0",
    "mongo": "mongodb+srv://me:" + made(12) + "@cluster0.example.net", "proxy": "http://me:" + made(10) + "@proxy:3128",
    "git url": "git+https://x-access-token:" + made(30) + "@github.com/me/private.git",
    "flag in a text": "curl --token abcdefgh https://example.com", "flag with =": "serve --api-key=abcdefgh",
    "variable in a text": "export WANDB_API_KEY=" + made(40, _HEX) + " && python train.py",
    "password in a text": "mysql --password=hunter22 -h db", "quoted in a text": "run --auth-token 'abcdefgh'",
}  # fmt: skip
_LETTERS_URLSAFE = string.ascii_letters + "-_"
WITHOUT_DIGITS: dict[str, str] = {
    "hugging face": "hf_" + letters(34), "hugging face organisation": "api_org_" + letters(34), "hugging face oauth": "hf_oauth_" + letters(60),
    "github": "ghp_" + letters(36), "github server": "ghs_" + letters(36), "github fine-grained": "github_pat_" + letters(22) + "_" + letters(59),
    **{f"gitlab {kind}": f"gl{kind}-" + letters(20, _LETTERS_URLSAFE) for kind in ("pat", "dt", "rt", "ft", "ptt", "imt", "oas", "soat", "agent", "cbt")},
    "openai old": "sk-" + letters(48), "openai project": "sk-proj-" + letters(60, _LETTERS_URLSAFE), "anthropic": "sk-ant-" + letters(90, _LETTERS_URLSAFE),
    "nvidia": "nvapi-" + letters(64, _LETTERS_URLSAFE), "groq": "gsk_" + letters(52), "replicate": "r8_" + letters(37),
    "google api": "AIza" + letters(35, _LETTERS_URLSAFE), "google oauth": "ya29." + letters(60, _LETTERS_URLSAFE), "google client secret": "GOCSPX-" + letters(28, _LETTERS_URLSAFE),
    "aws access key": "AKIA" + letters(16, _UPPER), "aws session key": "ASIA" + letters(16, _UPPER), "alibaba": "LTAI" + letters(20),
    "npm": "npm_" + letters(36), "npmrc": "//npm.example.com/:_authToken=" + letters(36), "pypi": "pypi-AgEIcHlwaS" + letters(80, _LETTERS_URLSAFE),
    "docker hub": "dckr_pat_" + letters(27, _LETTERS_URLSAFE), "vault": "hvs." + letters(90, _LETTERS_URLSAFE), "typeform": "tfp_" + letters(59, _LETTERS_URLSAFE),
    "terraform": letters(14) + ".atlasv1." + letters(64, _LETTERS_URLSAFE), "slack": "xoxb-" + letters(24), "slack app": "xapp-1-" + letters(40),
    "stripe": "sk_live_" + letters(24), "stripe restricted": "rk_test_" + letters(24), "stripe webhook": "whsec_" + letters(32),
    "sendgrid": "SG." + letters(22, _LETTERS_URLSAFE) + "." + letters(43, _LETTERS_URLSAFE), "linear": "lin_api_" + letters(40), "figma": "figd_" + letters(44, _LETTERS_URLSAFE),
    "atlassian": "ATATT3x" + letters(180, _LETTERS_URLSAFE), "bitbucket": "ATCTT3x" + letters(180, _LETTERS_URLSAFE), "square": "sq0atp-" + letters(22, _LETTERS_URLSAFE),
    "tailscale": "tskey-auth-" + letters(30), "age": "AGE-SECRET-KEY-1" + letters(58, _UPPER), "fly": "fly_pat_" + letters(40),
    "grafana": "glsa_" + letters(32) + "_" + letters(8, "abcdef"), "grafana cloud": "glc_" + letters(60), "new relic": "NRAK-" + letters(27, _UPPER),
    "notion": "ntn_" + letters(46), "notion old": "secret_" + letters(43), "planetscale": "pscale_tkn_" + letters(43, _LETTERS_URLSAFE), "doppler": "dp.pt." + letters(43),
    "perplexity": "pplx-" + letters(48), "xai": "xai-" + letters(80), "together": "tgp_v1_" + letters(43, _LETTERS_URLSAFE), "azure storage": "AccountKey=" + letters(86) + "==",
    "azure sas": "https://a.blob.core.windows.net/c?sig=" + letters(43) + "%3D",
}  # fmt: skip
OF_HEX_DIGITS = {
    "digitalocean": "dop_v1_" + made(64, _HEX), "databricks": "dapi" + made(32, _HEX), "databricks federated": "dkea" + made(32, _HEX), "pulumi": "pul-" + made(40, _HEX),
    "shopify": "shpca_" + made(32, _HEX), "postman": "PMAK-" + made(24, _HEX) + "-" + made(34, _HEX), "rubygems": "rubygems_" + made(48, _HEX),
    "airtable": "pat" + letters(14) + "." + made(64, _HEX), "supabase": "sbp_" + made(40, _HEX), "circleci": "CCIPAT_" + letters(22) + "_" + made(40, _HEX),
    "discord hook": "discord.com/api/webhooks/123456789012345678/" + letters(60), "office hook": "IncomingWebhook/" + made(32, _HEX),
    "weights & biases": "wandb_v1_" + letters(22) + "_" + letters(54), "langsmith": "lsv2_pt_" + made(32, _HEX) + "_" + made(10, _HEX), "pinecone": "pcsk_" + letters(6) + "_" + made(62),
    "slack hook": "https://hooks.slack.com/services/T0" + letters(8, _UPPER) + "/B0" + letters(8, _UPPER) + "/" + letters(24), "telegram": "123456789:AA" + letters(33, _LETTERS_URLSAFE),
}  # fmt: skip
"""Tokens that always have a digit."""
NAMED = {
    "GITHUB_TOKEN": "abc", "DB_PASS": "hunter2", "PGPASSWORD": "hunter2", "DATABASE_PASSWORD": "correct horse",
    "WANDB_API_KEY": "0" * 40, "AWS_SECRET_ACCESS_KEY": "x/y+z", "OPENAI_APIKEY": "abc", "client_secret": "abc",
    "authToken": "abcdefgh", "MLFLOW_TRACKING_PASSWORD": "abc", "COMET_API_KEY": "abc", "SSH_PRIVATE_KEY": "abc",
    "ENCRYPTION_KEY": "abc", "KEY_PASSPHRASE": "abc", "GOOGLE_CREDENTIALS": "abc", "token": "abcdefgh",
    "KAGGLE_KEY": "0123456789abcdef" * 2, "OPENAI_KEY": "Tr0ub4dor3", "GITHUB_PAT": "Tr0ub4dor3", "DBPASS": "Tr0ub4dor3", "DB_PW": "Tr0ub4dor3",
    "AZURE_STORAGE_KEY": "abc/d", "AZURE_DEVOPS_EXT_PAT": "abcdefgh", "AZURE_STORAGE_CONNECTION_STRING": "AccountKey=abcd", "WANDB_KEY": "abc",
    "wandb_key": "abc", "DD_APP_KEY": "abc", "SSH_KEY": "abc", "DB_CREDS": "abc", "HF_TOKEN_READ": "hunter22", "PASSWORD_2": "hunter22",
    "DB_PASSWORD_PROD": "hunter22", "DB_PASSWORD_PROD_2": "hunter22", "GITHUB_TOKEN_2": "hunter22", "GITHUB_TOKEN2": "hunter22", "HF_PAT": "hunter22",
    "MYSECRET": "hunter22", "API_KEY_STAGING": "hunter22", "AWS_SECRET_ACCESS_KEY_DEV": "hunter22", "TOKEN_PROD": "hunter22", "HFTOKEN": "hunter22",
    "apiToken": "hunter22", "client_secret_old": "hunter22", "PRIVATE_KEY_PEM": "hunter22", "api_keys": "hunter22", "ACCESS_TOKENS": "hunter22",
}  # fmt: skip


TEXTS = [
    "https://x/y?token=abcd1234", "https://x/y?api_key=hunter&z=1", "https://a.blob.core.windows.net/c?sv=1&sig=ab%2Bc", "https://b.s3.amazonaws.com/k?X-Amz-Signature=0a1b2c",
    "Server=tcp:x;User ID=a;Password=hunter;", "Endpoint=sb://x;SharedAccessKeyName=a;SharedAccessKey=hunter22", '{"password": "hunter22"}', "{'password': 'hunter22'}",
    "--config={\"wandb_key\":\"hunter22\"}", "token=hunter22", "run token='hunter22'", "X-Api-Key: abcd1234efgh", "curl -H 'X-Api-Key: abcd1234efgh' https://x", "curl -u alice:hunter22 https://x",
    "curl --user alice:hunter22 https://x", "https://bob:p/hunter22@host/x", "https://mytoken123@index.example.com/simple",
    "https://mytoken123:@index.example.com/simple", "git+https://mytoken123@github.com/me/x.git", "https://discord.com/api/webhooks/123456789012345678/" + made(60),
    "https://x.webhook.office.com/webhookb2/a@b/IncomingWebhook/" + made(32, _HEX) + "/" + made(36, _HEX), "-eyJhbGciOiJIUzI1NiJ9." + _jwt().partition(".")[2],
]  # fmt: skip
"""Texts that say themselves what is secret."""
NESTED: list[tuple[Any, str]] = [
    ({"auth": ["alice", "hunter22"]}, "x.auth[1]"), ({"token": 12345678901234}, "x.token"), ({"passwords": {"db_password": ["hunter22"]}}, "x.passwords.db_password[0]"),
    ({"vault.corp/token": "s.abcdefgh"}, "x.vault.corp/token"), ({"example.com/secret": "hunter"}, "x.example.com/secret"), ({"example.com/api-key": "hunter"}, "x.example.com/api-key"),
    ({"DOCKER_AUTH_CONFIG": '{"auths": {"r": {"auth": "YTpi"}}}'}, "x.DOCKER_AUTH_CONFIG"), (["-u", "alice:hunter22"], "x[1]"), ({"auth": "alice:hunter22"}, "x.auth"),
    ({"passwords": ["hunter22", "true"]}, "x.passwords[0]"), ({"api_keys": ["hunter22"]}, "x.api_keys[0]"),
    ({"auth_token": ["hunter22"]}, "x.auth_token[0]"), ([["DB_PASSWORD", "hunter22"]], "x[0][1]"), ({"password": {"prod": "hunter22"}}, "x.password.prod"),
]  # fmt: skip


def _digests() -> Iterator[str]:
    for index in range(40):
        data = str(index).encode()
        yield hashlib.sha256(data).hexdigest()
        yield f"sha256:{hashlib.sha256(data).hexdigest()}"
        yield f"registry.example.com/team/train:1.{index}@sha256:{hashlib.sha256(data).hexdigest()}"
        yield hashlib.md5(data).hexdigest()
        yield hashlib.sha1(data).hexdigest()
        yield str(uuid.UUID(int=_RANDOM.getrandbits(128), version=4))
        yield base64.b64encode(_RANDOM.randbytes(300)).decode()
        yield base64.b64encode(bytes(200) + _RANDOM.randbytes(100)).decode()
        yield base64.urlsafe_b64encode(_RANDOM.randbytes(200)).decode()


HARMLESS = [
    *_digests(), "", "meta-llama/Llama-3.1-70B-Instruct", "hf://datasets/owner/name@refs/convert/parquet", "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4",
    "/workspace/dataset/train-00000-of-00042-3f2a9c1b7d5e4f60.parquet", "s3://bucket/prefix/2026-11-22T09:29:08Z/part-00001",
    "nvcr.io/nvidia/pytorch:25.03-py3", "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime", "https://packages.example.com/simple", "ssh://git@github.com/me/x.git",
    "git@github.com:me/x.git", "git+ssh://git@github.com/me/x.git@v1.2.3", "https://user:$(PASSWORD)@index/simple", "https://me:${TOKEN}@index/simple",
    "https://example.com/@scope/package", "mailto:someone@example.com", "torch==2.7.1", "transformers[torch]>=4.51,<5", "0.0001", "1e-5",
    "python -m torch.distributed.run --nproc-per-node 8 train.py --max-tokens 4096 --tokenizer bpe --pad-token '<pad>'",
    "bash -c 'exec python train.py --learning-rate=3e-4 --num-train-epochs 3'", "NCCL_DEBUG=INFO", "trainer.kubeflow.org/trainjob-ancestor-step",
    "arn:aws:iam::123456789012:role/training", "task-sk-learn-experiment-2026-11-22-000000001", "disk-1234567890123456789012345678901234567890",
    "key-d41d8cd98f00b204e9800998ecf8427e", "--token-file=/var/run/secrets/token", "--token $(HF_TOKEN)", "eyJhIjogMX0=", "import os; login(token=os.environ['HF_TOKEN'], password=getpass())", "Basic training of a model",
    "python train.py --sort-key length --tokenizer bpe token=tok key_size=2048 optimizer.lr=1e-4 model.pad_token=first data.seed=0x1f2e3d4c", "main(args, token=tok2, password=load())",
    '{"pad_token": "<pad>", "eos_token": "</s>", "primary_key": "user_id", "foreign_keys": "a,b", "sort_key": "length1"}', "https://x/y?page=2&sort=key1&version=abc123", "https://host:8080/path@v1",
    "git+ssh://git@github.com:me/x1.git@v1.2.3", "https://registry.example.com/token:v1.2", "docker run -u 1000:1000 -e A=b1", "chown -R user:group /data", "s3://bucket/a:b1@c", "pip install x@https://host/x.whl?sha256=0a1b2c3d",
    "x=1; y=2; tokens=batch1", "a;b=c1;d=e2", "Endpoint: https://x1/y2", "Note: step 12a", "https://contoso2024@dev.azure.com/x/_git/y", "https://git@github.com/me/x1.git", "https://user1@host/x", "0" * 40, "key: value1", "sqlite:///runs.db", "mlflow+https://host1/path",
]  # fmt: skip
NAMES_LIKE_TOKENS = [
    "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", "hf_XLMRobertaForSequenceClassification", "hf_BertForMaskedLMTokenizer(config)", "hf_hub_download_with_retries_of_errors", "hf_" + "x" * 34, "hf_" + "X" * 34,
    "tfp_distribution_lambda_layer_for_normals", "github_pat_of_the_readonly_repository", "hvs.compute_weighted_average_of_all()", "sk-admin-panel-header-navigation-item",
    "glpat-YOUR_TOKEN_GOES_HERE_OK", "glpat-your-token-goes-here-please", "sk-proj-your-api-key-goes-here", "AKIAXXXXXXXXXXXXXXXX", "api_org_name_of_the_organisation_in_the_hub",
    "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", "https://hooks.slack.com/services/T00000000/B00000000/" + "X" * 24,
    "ghp_" + "x" * 36, "npm_" + "X" * 36, "secret_for_the_training_namespace_of_the_whole_team", "glc_gradient_length_control_of_all_layers", "fly_pat_for_deployments_of_the_staging_app",
]  # fmt: skip
"""Names in programs and placeholders in their comments."""
HARMLESS_NAMED = {
    "MAX_TOKENS": "4096", "TOKENIZER": "bpe", "TOKENIZERS_PARALLELISM": "false", "pad_token": "<pad>", "eos_token": "</s>", "bos_token_id": "1",
    "mask_token": "[MASK]", "stop_token": "done", "HF_TOKEN_PATH": "/secrets/hf", "PASSWORD_FILE": "/run/secrets/db", "SECRET_NAME": "db", "PASS": "3",
    "NUM_PASSES": "12", "DB_PASS": "$(DB_PASS_FROM_SECRET)", "API_KEY": "${API_KEY}", "TOKEN": "/var/run/token", "KEY": "value", "PWD": "/workspace",
    "SORT_KEY": "length", "ACCESS_TOKEN": "", "cls_token": "cls", "USE_AUTH_TOKEN": "true", "token": "mean", "compass": "north", "PASSWORDLESS": "1",
    "tokenizer": "gpt2", "max_tokens": "131072", "key_size": "2048", "num_tokens": "1000000000000", "token_ids": "1,2,3", "PATH": "/usr/bin:/bin", "SSH_AUTH_SOCK": "/tmp/agent1",
    "primary_key": "user_id", "foreign_key": "order_id2", "foreign_keys": "a1,b2", "SEED": "9f86d081884c7d65", "GIT_SHA": "0" * 40, "partition_key": "day1", "cache_key": "v1-abc", "label_key": "y1",
    "storage_key": "models/a1.bin", "SSH_KEY_PATH": "keys/id1", "WANDB_KEY_FILE": "keys/w1", "DATABASE_CONNECTION_STRING": "sqlite:///runs1.db", "auth": "iam2", "AUTH_MODE": "oauth2", "bypass": "layer1",
    "image_key": "jpg1", "pattern": "*.pt", "FILE_PAT": "train1-*", "author": "me:you1x", "token_type_ids": "0,1", "signature": "sha256", "digest": "sha256:" + "0a" * 32,
    "SECRET_REF": "db1-secret", "TOKEN_URL": "https://x/token1", "PASSWORD_POLICY": "strict1", "IMAGE_TOKEN_2": "hunter22", "extra_token_1": "hunter22", "num_tokens_prod": "4096000000", "stop_tokens": "a1b2c3d4",
}  # fmt: skip


def found(value: Any) -> list[str]:
    return [p.where for p in plaintext_secrets.problems(value, "x")]


def test_100_shapes() -> None:
    assert len(SHAPES) == 100


@pytest.mark.parametrize("shape", SHAPES)
def test_a_token_is_found_wherever_it_stands(shape: str) -> None:
    value = SHAPES[shape]
    assert found([{"name": "SETTING", "value": value}]) == ['x["SETTING"]']
    assert found(["python", "train.py", value]) == ["x[2]"]
    assert found({"a": {"b": [{"c": value}]}}) == ["x.a.b[0].c"]


@pytest.mark.parametrize(
    "token", [*WITHOUT_DIGITS.values(), *OF_HEX_DIGITS.values()], ids=[*WITHOUT_DIGITS, *OF_HEX_DIGITS]
)
def test_a_token_of_letters_is_found(token: str) -> None:
    assert plaintext_secrets.holds_token(f"login({token!r})\n")
    assert plaintext_secrets.problems_of_source(f"login({token!r})\n", "trainer.func")
    assert found([{"name": "SETTING", "value": token}]) == ['x["SETTING"]']
    assert found({"login": token}) == ["x.login"]


@pytest.mark.parametrize("shape", plaintext_secrets.SHAPES)
def test_each_prefix_has_a_token_in_the_tables(shape: str) -> None:
    with_digits = [
        *SHAPES.values(),
        *OF_HEX_DIGITS.values(),
        *("api_org_" + made(34), "hf_oauth_" + made(60), "tfp_" + made(59), "whsec_" + made(32)),
    ]
    tokens = [each for each in [*WITHOUT_DIGITS.values(), *OF_HEX_DIGITS.values()] if re.search(shape, each)]
    assert tokens
    tokens = [each for each in with_digits if re.search(shape, each)]
    assert tokens
    assert all(map(plaintext_secrets.is_token, tokens))


@pytest.mark.parametrize("name", NAMES_LIKE_TOKENS)
def test_a_name_that_begins_like_a_token_is_none(name: str) -> None:
    assert not plaintext_secrets.holds_token(f"x = {name}\n")


@pytest.mark.parametrize("name", NAMED)
def test_a_secret_by_its_name(name: str) -> None:
    value = NAMED[name]
    assert found([{"name": name, "value": value}]) == [f'x["{name}"]']
    assert found({"conf": {name: value}}) == [f"x.conf.{name}"]
    flag = "--" + name.lower().replace("_", "-")
    assert found([flag, value]) == ["x[1]"]
    assert found([f"{flag}={value.replace(' ', '')}"]) == (["x[0]"] if len(value) >= 4 else [])


def test_harmless_values() -> None:
    assert [v for v in HARMLESS if found([{"name": "SETTING", "value": v}, v])] == []
    assert [n for n, v in HARMLESS_NAMED.items() if found([{"name": n, "value": v}]) or found({n: v})] == []
    plain = {
        "token": 128256,
        "pad_token": [1, 2],
        "auth": True,
        "token_ids": [12345678901],
        "seed": 12345678901234,
        "num_tokens": 10**13,
        "auths": ["a1", "b2"],
    }
    assert (
        found(plain) == []
        and found(
            {"columns": ["password", "email"], "secret": {"secretName": "db1"}, "stop_tokens": ["<eos>", "a1b2c3d4"]}
        )
        == []
        and found({"primary_key": ["a1", "b2"], "betas": [0.9, 0.999], "tokens": ["a1b2", "c3d4"]}) == []
    )
    assert found([{"name": "API_KEY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}}]) == []


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_says_what_is_secret(text: str) -> None:
    assert found([{"name": "SETTING", "value": text}]) == ['x["SETTING"]']
    assert found({"note": text}) == ["x.note"]


@pytest.mark.parametrize(("value", "place"), NESTED)
def test_a_secret_by_its_key(value: Any, place: str) -> None:
    assert found(value) == [place]


def test_source() -> None:
    text = 'def work():\n    login(token=os.environ["HF_TOKEN"], password=load())\n'
    assert plaintext_secrets.problems_of_source(text, "trainer.func") == []
    (problem,) = plaintext_secrets.problems_of_source(
        text.replace('os.environ["HF_TOKEN"]', repr(SHAPES["hugging face"])), "f"
    )
    assert SHAPES["hugging face"] not in str(problem)


KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCY0123456789"


@pytest.mark.parametrize(
    "line",
    [
        f"AWS_SECRET_ACCESS_KEY = '{KEY}'",
        f"aws_secret_access_key={KEY}",
        f'os.environ["AWS_SECRET_ACCESS_KEY"] = "{KEY}"',
        f'{{"aws_secret_key": "{KEY}"}}',
        f"WANDB_API_KEY: {'0123456789abcdef0123' * 2}",
    ],
)
def test_keys_of_services_are_found_behind_their_names(line: str) -> None:
    assert plaintext_secrets.problems_of_source(f"import os\n{line}\n", "trainer.func")
    example = line.replace("bPxRfiCY", "bEXAMPLE").replace("0123456789abcdef0123" * 2, "os.environ['KEY']")
    assert not plaintext_secrets.problems_of_source(f"import os\n{example}\n", "trainer.func")


@pytest.mark.parametrize("shape", SHAPES)
def test_no_message_shows_a_value(shape: str) -> None:
    value = SHAPES[shape]
    (problem,) = plaintext_secrets.problems([{"name": "SETTING", "value": value}], "env")
    assert not any(value[i : i + 8] in str(problem) for i in range(max(1, len(value) - 8)))


def test_the_rules_are_loaded_for_candidates_alone() -> None:
    """A program with plain values pays nothing for them."""
    program = (
        "import sys\nfrom pulumi_trainer.args import plaintext_secrets\n"
        "plaintext_secrets.problems([{'name': 'LR', 'value': '0.1'}, {'name': 'M', 'value': 'meta-llama/Llama-3.1-8B'},"
        " {'name': 'I', 'value': 'r/train@sha256:' + '0123456789abcdef' * 4}], 'env')\n"
        "assert 'detect_secrets' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_a_long_text_is_judged_in_proportion_to_its_length() -> None:
    """Each character once, whatever it is: 2 MiB that begin like tokens all the time."""
    parts = (
        "eyJ", "a" * 19 + " ", "://:@", "hf_", "--token=", "Bearer ", "-----BEGIN ", "1", "a", "-eyJ9" * 800 + " ", "sk-1" * 1000 + " ",
        "//1a" * 1000 + " ", "wandb_api_key=", "aws_secret_key=" + "1a" * 19 + " ", ".eyJ1234567890" * 300 + ". ", "SG.", "://a:b", "?a=b", '"a":', "a;b=", "a: ",
    )  # fmt: skip
    for part in parts:
        found([part * (2**20 // len(part)) + " @://"])
        plaintext_secrets.is_token(part * (2**21 // len(part)))
        found([part * (2**21 // len(part))])
