"""The transport to an API server: what comes back from a network is not what a server has sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import urllib3
from kubernetes_support import TOKEN, Server, answer, cut, named, refusal, reset, server, stream
from pulumi_trainer.provider.kubernetes.client import client as client_module
from pulumi_trainer.provider.kubernetes.client import transport
from pulumi_trainer.provider.kubernetes.client.api_resources import CONFIG_MAP, POD
from pulumi_trainer.provider.kubernetes.client.client import Access, ApiError, Client, Unreachable
from pulumi_trainer.provider.kubernetes.errors import TargetFault

DOCUMENT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "team"}}


@pytest.fixture
def api() -> Iterator[Server]:
    with server() as made:
        yield made


def get(api: Server, patience: float = 10.0) -> Any:
    return api.client(patience=patience).get(CONFIG_MAP, "team", "a")


class TestTryingAgain:
    @pytest.mark.parametrize("code", [429, 500, 502, 503, 504])
    def test_a_server_in_trouble(self, api: Server, code: int) -> None:
        api.does(refusal(code, "Trouble"), refusal(code, "Trouble"), answer(200, named()))
        assert get(api)["metadata"]["uid"] == "uid-a"
        assert len(api.seen) == 3

    @pytest.mark.parametrize("code", [400, 403, 405, 409, 413, 415, 422])
    def test_a_refusal_is_one(self, api: Server, code: int) -> None:
        api.does(refusal(code, "No", "not so"), answer(200, named()))
        with pytest.raises(ApiError, match="ConfigMap team/a: not so") as caught:
            get(api)
        assert (caught.value.code, caught.value.reason, len(api.seen)) == (code, "No", 1)

    def test_broken_connections(self, api: Server) -> None:
        api.does(reset, cut(), cut(b""), answer(200, named()))
        assert get(api)["metadata"]["uid"] == "uid-a"
        assert len(api.seen) == 4

    def test_the_server_says_when(self, api: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        waits: list[float] = []
        monkeypatch.setattr(client_module.time, "sleep", waits.append)
        api.does(
            refusal(429, "TooMany", Retry_After="7"), refusal(503, "Away", Retry_After="soon"), answer(200, named())
        )
        assert get(api)
        assert waits[0] == 7 and waits[1] < 1

    def test_it_does_not_wait_longer_than_its_patience(self, api: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_module.time, "sleep", lambda _: pytest.fail("it slept"))
        api.does(refusal(429, "TooMany", "later", Retry_After="30"))
        with pytest.raises(ApiError, match="later"):
            get(api)

    def test_pauses_grow_and_differ(self, api: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        waits: list[float] = []
        monkeypatch.setattr(client_module.time, "sleep", waits.append)
        api.does(*[refusal(500, "Trouble")] * 9, answer(200, named()))
        assert get(api, patience=1000)
        assert all(0.5 * p <= w <= p for w, p in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5], strict=True))
        assert len(set(waits)) == 9

    def test_a_server_that_hangs(self, api: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_module, "READ_SECONDS", 0.2)
        held = threading.Event()
        api.does(lambda _: held.wait(10) and None, answer(200, named()))
        try:
            assert get(api)
        finally:
            held.set()

    def test_nobody_listens(self) -> None:
        with server() as gone:
            client = gone.client(patience=0.5)
        with pytest.raises(Unreachable, match=r"^no answer from http.*: .*refused. Hint: is the cluster up"):
            client.get(CONFIG_MAP, "team", "a")

    def test_a_name_that_nobody_knows_is_told_soon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_module, "LASTING", 0.0)
        monkeypatch.setattr(client_module.time, "sleep", lambda _: pytest.fail("it slept"))
        access = Access("http://nosuch.invalid", urllib3.PoolManager(), list)
        with pytest.raises(Unreachable, match=r"no answer from http://nosuch\.invalid"):
            Client(lambda _: access).get(CONFIG_MAP, "team", "a")


class TestAfterTheServerHasActed:
    """The answer is lost, the request is sent again."""

    def test_a_create_finds_what_it_has_made(self, api: Server) -> None:
        api.does(reset, refusal(409, "AlreadyExists"))
        with pytest.raises(ApiError) as caught:
            api.client().create(CONFIG_MAP, DOCUMENT)
        assert caught.value.reason == "AlreadyExists"

    def test_a_delete_finds_nothing(self, api: Server) -> None:
        api.does(reset, refusal(404, "NotFound"))
        assert api.client().delete(CONFIG_MAP, "team", "a") is False

    def test_a_delete_finds_another(self, api: Server) -> None:
        api.does(reset, refusal(409, "Conflict", "the UID in the precondition (a) does not match"))
        assert api.client().delete(CONFIG_MAP, "team", "a", uid="a") is False

    def test_an_apply_is_repeated(self, api: Server) -> None:
        api.does(reset, answer(200, named()))
        assert api.client().apply(CONFIG_MAP, DOCUMENT)["metadata"]["uid"] == "uid-a"
        assert [method for method, _ in api.seen] == ["PATCH", "PATCH"]


class TestAnswersThatAreNone:
    def test_absent(self, api: Server) -> None:
        api.does(refusal(404, "NotFound"))
        assert get(api) is None

    def test_no_such_kind(self, api: Server) -> None:
        api.does(answer(404, b"404 page not found\n", Content_Type="text/plain"))
        assert get(api) is None

    def test_a_404_of_a_proxy_does_not_mean_absent(self, api: Server) -> None:
        api.does(answer(404, b"<html>no such site</html>", Content_Type="text/html"))
        with pytest.raises(ApiError, match="no such site"):
            get(api)
        with pytest.raises(ApiError, match="no such site"):
            api.client().delete(CONFIG_MAP, "team", "a")

    @pytest.mark.parametrize("body", [b"<html>log in</html>", b"", b"[]", b"null"])
    def test_no_json_object(self, api: Server, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_module, "LASTING", 0.0)
        api.does(answer(200, body, Content_Type="text/html"))
        with pytest.raises(Unreachable, match="the answer is not a JSON object"):
            get(api)

    def test_json_that_was_cut_is_asked_for_again(self, api: Server) -> None:
        api.does(answer(200, b'{"kind": "Config'), answer(200, named()))
        assert get(api)

    def test_redirects_are_not_followed(self, api: Server) -> None:
        api.does(answer(302, b"", Location=f"https://login.example/x?state={TOKEN}"), answer(200, named()))
        with pytest.raises(ApiError, match=r"redirected to https://login.example, which is not followed") as caught:
            get(api)
        assert len(api.seen) == 1 and TOKEN not in str(caught.value)


class TestLists:
    def test_pages(self, api: Server) -> None:
        first = {"items": [named("a")], "metadata": {"continue": "next", "resourceVersion": "7"}}
        last = {"items": [named("b")], "metadata": {"resourceVersion": "7"}}
        api.does(answer(200, first), answer(200, last))
        found, version = api.client().list(CONFIG_MAP, "team", labels="x=y", keep=lambda o: o["metadata"])
        assert ([o["name"] for o in found], version) == (["a", "b"], "7")
        assert "continue=next" in api.seen[1][1] and "labelSelector=x%3Dy" in api.seen[1][1]

    def test_an_expired_page_begins_anew(self, api: Server) -> None:
        first = {"items": [named("a")], "metadata": {"continue": "next", "resourceVersion": "7"}}
        again = {"items": [named("b")], "metadata": {"resourceVersion": "9"}}
        api.does(answer(200, first), refusal(410, "Expired"), answer(200, again))
        found, version = api.client().list(CONFIG_MAP, "team")
        assert ([o["metadata"]["name"] for o in found], version) == (["b"], "9")

    def test_pages_that_always_expire(self, api: Server) -> None:
        first = {"items": [], "metadata": {"continue": "next"}}
        api.does(*[answer(200, first), refusal(410, "Expired", "too old")] * 500)
        with pytest.raises(ApiError, match="too old"):
            api.client(patience=1.5).list(CONFIG_MAP, "team")

    def test_a_first_page_that_is_expired(self, api: Server) -> None:
        api.does(refusal(410, "Expired", "too old"))
        with pytest.raises(ApiError, match="too old"):
            api.client().list(CONFIG_MAP, "team")


class TestCredentials:
    def renewing(self, api: Server, tokens: Iterator[str]) -> tuple[Client, list[str]]:
        opened: list[str] = []

        def configure(_: float) -> Access:
            opened.append(token := next(tokens))
            return Access(api.url, urllib3.PoolManager(maxsize=32), lambda: [("Authorization", f"Bearer {token}")])

        return Client(configure, patience=5), opened

    def by_token(self, good: str) -> Any:
        def act(handler: Any) -> None:
            fine = handler.headers["Authorization"] == f"Bearer {good}"
            (answer(200, named()) if fine else refusal(401, "Unauthorized"))(handler)

        return act

    def test_they_are_renewed_once(self, api: Server) -> None:
        client, opened = self.renewing(api, iter(["old-token", "new-token"]))
        api.does(self.by_token("new-token"))
        assert client.get(CONFIG_MAP, "team", "a")
        assert (opened, len(api.seen)) == (["old-token", "new-token"], 2)

    def test_and_then_it_is_an_error(self, api: Server) -> None:
        client, opened = self.renewing(api, iter(["a", "b", "c"]))
        api.does(self.by_token("d"))
        with pytest.raises(ApiError, match=r"Unauthorized. Hint: log in again"):
            client.get(CONFIG_MAP, "team", "a")
        assert (opened, len(api.seen)) == (["a", "b"], 2)

    def test_once_for_all_threads(self, api: Server) -> None:
        client, opened = self.renewing(api, iter(["old-token", "new-token", "third"]))
        api.does(self.by_token("new-token"))
        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda _: client.get(CONFIG_MAP, "team", "a"), range(200)))
        assert all(found) and opened == ["old-token", "new-token"]
        assert client.requests == len(api.seen)

    def test_a_watch_renews_them_too(self, api: Server) -> None:
        client, opened = self.renewing(api, iter(["old-token", "new-token"]))
        event = json.dumps({"type": "ADDED", "object": named()}).encode() + b"\n"
        api.does(refusal(401, "Unauthorized"), stream(event))
        assert len(list(client.watch(CONFIG_MAP, "team", "1"))) == 1
        assert opened == ["old-token", "new-token"]

    def test_those_that_have_expired_are_not_sent(self, api: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [1000.0]
        monkeypatch.setattr(transport.time, "time", lambda: now[0])
        sent = iter(["first", "second"])

        def configure(_: float) -> Access:
            token = next(sent)
            headers = [("Authorization", token)]
            return Access(api.url, urllib3.PoolManager(), lambda: headers, expires=now[0] + 60)

        client = Client(configure)
        api.does(answer(200, named()))
        for _ in range(2):
            client.get(CONFIG_MAP, "team", "a")
        now[0] += 61
        client.get(CONFIG_MAP, "team", "a")
        assert [h["Authorization"] for h in api.headers] == ["first", "first", "second"]

    def test_what_cannot_be_opened_is_told_to_all_who_wait(self) -> None:
        asked: list[float] = []

        def configure(patience: float) -> Access:
            asked.append(patience)
            time.sleep(0.3)
            raise TargetFault("no plugin")

        client = Client(configure, patience=7)

        def look(_: int) -> str:
            with pytest.raises(TargetFault) as caught:
                client.get(CONFIG_MAP, "team", "a")
            return str(caught.value)

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(look, range(8))) == {"no plugin"}
        assert len(asked) < 4 and set(asked) == {7}

    @pytest.mark.parametrize("code", [200, 400, 401, 403, 404, 500, 503])
    def test_an_answer_that_quotes_them(self, api: Server, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_module, "LASTING", 0.0)
        text = f"you sent Authorization: Bearer {TOKEN}"
        bodies: list[Any] = [text.encode(), [text]]
        if code != 200:
            bodies.append({"message": text, "details": {"causes": [{"message": text}]}})
        for body in bodies:
            api.does(answer(code, body, Content_Type="text/plain"))
            with pytest.raises(TargetFault) as caught:
                get(api, patience=0.05)
            told = [str(caught.value), repr(caught.value), repr(vars(caught.value))]
            assert not [t for t in told if TOKEN in t], told

    def test_nothing_of_them_in_a_representation(self, api: Server) -> None:
        client = api.client()
        api.does(answer(200, named()))
        client.get(CONFIG_MAP, "team", "a")
        access = client._shared.access(1)
        assert TOKEN not in "".join(map(repr, (client, client._shared, access)))


class TestStreams:
    def event(self, name: str) -> bytes:
        return json.dumps({"type": "ADDED", "object": named(name)}).encode() + b"\n"

    def test_lines_may_be_cut_anywhere(self, api: Server) -> None:
        text = b"".join(self.event(n) for n in "abc")
        for size in (1, 7, 50, 1000):
            api.does(stream(*[text[i : i + size] for i in range(0, len(text), size)]))
            found = [e["object"]["metadata"]["name"] for e in api.client().watch(CONFIG_MAP, "team", "1")]
            assert found == ["a", "b", "c"]

    def test_a_connection_that_breaks(self, api: Server) -> None:
        api.does(stream(self.event("a"), self.event("b")[:20], broken=True))
        found = []
        with pytest.raises(Unreachable, match=r"the connection broke|is not a JSON"):
            for event in api.client().watch(CONFIG_MAP, "team", "1"):
                found.append(event["object"]["metadata"]["name"])
        assert found == ["a"]

    def test_events_come_as_they_are_sent(self, api: Server) -> None:
        seen = threading.Event()

        def act(handler: Any) -> None:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            piece = self.event("a")
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            assert seen.wait(10)
            handler.wfile.write(b"0\r\n\r\n")

        api.does(act)
        for _ in api.client().watch(CONFIG_MAP, "team", "1"):
            seen.set()
        assert seen.is_set()

    def test_the_server_ends_it_with_an_error(self, api: Server) -> None:
        gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old resource version"}}
        api.does(stream(json.dumps(gone).encode()))
        with pytest.raises(ApiError, match="too old") as caught:
            list(api.client().watch(CONFIG_MAP, "team", "1"))
        assert caught.value.code == 410

    def test_logs(self, api: Server) -> None:
        api.does(stream(b"one\ntw", b"o\n\nthree"))
        assert b"".join(api.client().logs("team", "a/b", {"container": "node"})) == b"one\ntwo\n\nthree"
        assert api.seen == [("GET", f"{POD.path('team')}/a%2Fb/log?container=node")]

    def test_whoever_stops_listening_closes_the_connection(self, api: Server) -> None:
        closed = threading.Event()

        def act(handler: Any) -> None:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            piece = self.event("a")
            try:
                while True:
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    time.sleep(0.01)
            except OSError:
                closed.set()

        api.does(act)
        events = api.client().watch(CONFIG_MAP, "team", "1")
        next(iter(events))
        events.close()
        assert closed.wait(10)


def test_the_identity_of_a_cluster_is_asked_once(api: Server) -> None:
    client = api.client()
    api.does(answer(200, {"metadata": {"name": "kube-system", "uid": "u-1"}}))
    assert client.cluster_id() == client.within(1).cluster_id() == "u-1"
    assert api.seen == [("GET", "/api/v1/namespaces/kube-system")]


def test_a_cluster_without_identity(api: Server) -> None:
    api.does(refusal(404, "NotFound"))
    with pytest.raises(TargetFault, match="has no namespace kube-system"):
        api.client().cluster_id()


class Endless(Client):
    """A server whose log never ends."""

    asked: Mapping[str, str]

    def logs(self, namespace: str, pod: str, query: Mapping[str, str], **_: Any) -> Iterator[bytes]:
        type(self).asked = query
        while True:
            yield b"x" * 65536


def test_the_tail_of_a_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Endless.__new__(Endless)
    assert len(client.log_tail("a", "pod", {"tailLines": "1"}, 100_000)) == 100_000
    assert Endless.asked == {"tailLines": "1", "limitBytes": "100000"}
    monkeypatch.setattr(client_module, "TAIL_SECONDS", 0.0)
    assert len(client.log_tail("a", "pod", {}, 1 << 30)) == 65536, "one that drips is not waited for"
