"""Who may speak to the service, and what it hands out."""

import http.client
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from raisf.retrieval.index import build_index
from raisf.retrieval.passage import Passage
from raisf.retrieval.serving.remote import RemoteIndex
from raisf.retrieval.serving.server import IndexServer
from raisf.serving.app import make_app
from raisf.serving.guard import Access, BodyTooLarge, _limited
from raisf.serving.limits import Limits
from raisf.serving.server import AppServer
from raisf.serving.service import Served
from raisf.serving.sources import document_of, source_of
from raisf.utils.errors import InputError

KEY = "k" * 32


def get(server: Any, path: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any, str]:
    """Status, headers and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read().decode("utf-8", "replace")


def test_a_page_under_another_name_reaches_nothing(server: Any) -> None:
    """DNS rebinding: the browser believes that this machine is evil.example."""
    for path in ("/", "/programs", "/healthz", "/mcp"):
        assert get(server, path, Host="evil.example")[0] == 421
        assert get(server, path, Host="evil.example:8080")[0] == 421
    assert get(server, "/", Host=f"localhost:{server.port}")[0] == 200
    assert get(server, "/", Host="[::1")[0] == 421


def test_a_page_of_another_site_may_not_ask(server: Any) -> None:
    body = json.dumps({"question": "number 1"})
    here = f"127.0.0.1:{server.port}"
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}):
        assert get(server, "/ask", "POST", body, **headers)[0] == 403
    assert get(server, "/ask", "POST", body, Origin=f"http://{here}")[0] == 200


def test_a_link_of_another_site_leads_to_the_page_alone(server: Any) -> None:
    """The links of citations stand in other chats."""
    follows = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert get(server, "/", **follows)[0] == 200
    assert get(server, "/programs", **follows)[0] == get(server, "/", "POST", "{}", **follows)[0] == 403
    assert get(server, "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0] == 403
    assert get(server, "/", Host="evil.example", **follows)[0] == 421


@pytest.mark.parametrize(
    "name", ["https://raisf.example", "raisf.example:443", "raisf.example/page", "", "a b", "raisf:8080"]
)
def test_a_name_that_no_request_could_have_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(InputError, match=r"give it bare, such as raisf\.example"):
        Access.of("127.0.0.1", None, [name])


def test_names_of_all_kinds_are_taken() -> None:
    assert {"raisf.example", "fe80::1"} < Access.of("127.0.0.1", None, ["Raisf.Example", "fe80::1"]).hosts


def test_a_key_is_asked_for_everywhere_but_on_the_page_itself(make: Any, start: Any) -> None:
    import hashlib

    with start(make(), Access(keys=(hashlib.sha256(KEY.encode()).digest(),))) as server:
        for path in ("/programs", "/metrics", "/source?pid=r1", "/v1/models", "/document?source=x"):
            assert get(server, path)[0] == 401
            assert get(server, path, Authorization="Bearer wrong")[0] == 401
            assert get(server, path, Authorization=KEY)[0] == 401
        assert get(server, "/ask", "POST", "{}")[0] == 401 and get(server, "/mcp", "POST", "{}")[0] == 401
        assert get(server, "/")[0] == get(server, "/page/app.js")[0] == get(server, "/healthz")[0] == 200
        assert get(server, "/programs", Authorization=f"Bearer {KEY}")[0] == 200


@pytest.mark.parametrize(("keys", "told"), [((), "the endpoint is down: start it again"), ((KEY,), "the server's log")])
def test_only_this_machine_is_told_what_the_lms_endpoint_said(
    make: Any, start: Any, caplog: Any, keys: tuple[str, ...], told: str
) -> None:
    """An endpoint's words name its address and its account, which strangers with a key had read."""
    import hashlib

    key = {"Authorization": f"Bearer {KEY}"}
    with start(make(), Access(keys=tuple(hashlib.sha256(one.encode()).digest() for one in keys))) as server:
        chat = {"messages": [{"role": "user", "content": "fail?"}]}
        asked = (("/ask", {"question": "fail?"}), ("/v1/chat/completions", chat), ("/ask", {"question": "endless?"}))
        plain, openai, too_long = (get(server, path, "POST", json.dumps(body), **key) for path, body in asked)
    assert told in plain[2] and told in openai[2] and openai[0] == 502
    assert ("endpoint" in plain[2] + openai[2]) == (not keys) and "the endpoint is down" in caplog.text
    assert "ask a shorter question" in too_long[2], "that is the client's own"


@pytest.mark.parametrize("keys", [(), (KEY,)])
def test_only_this_machine_is_told_where_the_index_server_is(
    rivers: Any, make: Any, start: Any, caplog: Any, keys: tuple[str, ...]
) -> None:
    import hashlib

    service = make()
    with IndexServer(rivers) as behind:
        thread = threading.Thread(target=behind.serve, daemon=True)
        thread.start()
        service.served["rag"].program.retriever = RemoteIndex(behind.url)
        behind.stop()
        thread.join()
    call = {"name": "search", "arguments": {"query": "Oltrey", "program": "rag"}}
    mcp = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    asked: list[tuple[str, Any]] = [("/ask", {"question": "Velm?", "program": "rag"}), ("/mcp", mcp)]
    given = {"Accept": "application/json, text/event-stream", "Content_Type": "application/json"}
    given |= {"Authorization": f"Bearer {KEY}"} if keys else {}
    with start(service, Access(keys=tuple(hashlib.sha256(one.encode()).digest() for one in keys))) as server:
        told = [get(server, path, "POST", json.dumps(body), **given)[2] for path, body in asked]
        told.append(get(server, "/source?program=rag&pid=r1", **given)[2])
    for one in told:
        assert (behind.url in one) == (not keys) and ("the index could not be searched: ask again" in one) == bool(keys)
    assert caplog.text.count(behind.url) == 3


@pytest.mark.parametrize("proxied", [False, True])
def test_an_address_that_a_client_makes_up_counts_behind_a_proxy_alone(make: Any, proxied: bool) -> None:
    service = make(Limits(rate=1))
    with AppServer(make_app(service, Access()), proxied=proxied) as server:
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        body = json.dumps({"question": "number 1", "stream": False})
        asked = [get(server, "/ask", "POST", body, X_Forwarded_For=f"203.0.113.{n}")[0] for n in range(3)]
        server.stop()
        thread.join()
    assert asked == ([200] * 3 if proxied else [200, 429, 429])


def test_a_key_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"{KEY}\n", "utf-8-sig")
    assert Access.of("0.0.0.0", tmp_path / "keys").knows(f"Bearer {KEY}")


def test_another_address_demands_a_key(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--api-key-file"):
        Access.of("0.0.0.0", None)
    keys = tmp_path / "keys"
    comment = f"# teams\n{KEY}\n"
    wrong = {
        "": "no key",
        "short\n": "shorter than 16",
        "ключ" * 5: "ASCII",
        comment: "begins with #",
        None: "cannot read",
    }
    for text, told in wrong.items():
        keys.unlink(missing_ok=True)
        if text is not None:
            keys.write_text(text, "utf-8")
        with pytest.raises(InputError, match=told):
            Access.of("0.0.0.0", keys)
    keys.write_text(f"{KEY}\n\n{'l' * 20}\n")
    access = Access.of("0.0.0.0", keys)
    assert access.knows(f"Bearer {KEY}") and access.knows(f"bearer {'l' * 20}") and not access.knows("Bearer ")
    assert not access.hosts and Access.of("127.0.0.1", keys, ["raisf.example"]).hosts >= {"raisf.example", "localhost"}


def test_any_loopback_address_is_this_machines_own(make: Any, start: Any) -> None:
    """It demands no key, and refuses the names of others."""
    with start(make(), Access.of("127.0.0.2", None)) as server:
        assert get(server, "/programs", Host=f"127.0.0.2:{server.port}")[0] == 200
        assert get(server, "/programs", Host="evil.example")[0] == 421


def test_a_large_body_is_not_read(make: Any, start: Any) -> None:
    with start(make(Limits(body=2_000))) as server:
        assert get(server, "/ask", "POST", "x" * 2_001)[0] == 413
        chunks = (b"x" * 1_000 for _ in range(5))
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/ask", chunks, encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        assert connection.getresponse().status == 413
        assert get(server, "/healthz")[0] == 200


def test_the_page_runs_its_own_files_only(server: Any) -> None:
    status, headers, text = get(server, "/")
    policy = headers["content-security-policy"]
    assert status == 200 and "default-src 'none'" in policy and "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff" and "frame-ancestors 'none'" in policy
    assert "http://" not in text and "https://" not in text and "style=" not in text and "onclick" not in text
    script = get(server, "/page/visible.js")[2] + get(server, "/page/app.js")[2]
    assert not any(way in script for way in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "http://"))
    assert get(server, "/page/../app.py")[0] == get(server, "/page/index.html")[0] == get(server, "/nothing")[0] == 404


def test_a_passage_stands_among_its_neighbours(server: Any) -> None:
    told = json.loads(get(server, "/source?program=rag&pid=r1")[2])
    assert told["passage"]["citation"] == "atlas/rivers.md, line 2"
    assert [one["pid"] for one in told["context"]] == ["r0", "r1", "r2", "r3"]
    status, _, text = get(server, "/source?pid=zzz")
    assert status == 404 and "no passage 'zzz'" in text and json.loads(text)["error"]["code"] == "not_found"
    assert json.loads(get(server, "/source?program=zzz&pid=r1")[2])["error"]["code"] == "model_not_found"


@pytest.mark.parametrize("kind", ["md", "csv", "jsonl", "paged.jsonl"])
def test_after_a_change_the_neighbours_are_those_in_the_document(tmp_path: Path, kind: str) -> None:
    def documents(changed: int | None = None) -> Path:
        texts = [f"{'New' if number == changed else 'Old'} words about matter {number}." for number in range(12)]
        rows = {
            "md": "".join(f"# Part {number}\n\n{text}\n\n" for number, text in enumerate(texts)),
            "csv": "id,text\n" + "".join(f"k{99 - number},{text}\n" for number, text in enumerate(texts)),
            "jsonl": "".join(json.dumps({"text": text}) + "\n" for text in texts),
            "paged.jsonl": "".join(  # of another document's pages
                json.dumps({"id": f"k{number}", "page": 99 - number, "text": text}) + "\n"
                for number, text in enumerate(texts)
            ),
        }
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / f"b.{kind}").write_text(rows[kind])
        (tmp_path / "docs" / "c.txt").write_text("Another document.")
        return tmp_path / "docs"

    build_index(documents(), tmp_path / "index", "bm25", progress=False)
    index = build_index(documents(changed=5), tmp_path / "index", "bm25", progress=False)
    assert len(index.manifest.segments) == 2
    for asked, shown in ((5, range(3, 8)), (4, range(2, 7)), (11, range(9, 12))):
        (pid,) = [passage.pid for passage in index.passages if f"matter {asked}." in passage.text]
        texts = [row["text"] for row in source_of(index, pid)["context"]]
        assert [int(text.rstrip(".").split()[-1]) for text in texts] == [*shown]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_a_document_is_shown_in_its_own_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_text("Die Küche heißt Café.", encoding)
    retriever = SimpleNamespace(passages=[Passage("a", "Die", source="a.txt")])
    _, _, charset = document_of(tmp_path, retriever, "a.txt").media_type.partition("charset=")
    assert "Die Küche heißt Café." in (tmp_path / "a.txt").read_bytes().decode(charset)


def test_a_page_is_shown_in_the_encoding_that_it_declares(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<meta charset=windows-1251><p>Взнос пять евро.", "windows-1251")
    retriever = SimpleNamespace(passages=[Passage("a", "Взнос", source="a.html")])
    assert document_of(tmp_path, retriever, "a.html").media_type == "text/plain; charset=windows-1251"


def test_documents_are_handed_out_only_if_told_to_and_never_as_a_page(make: Any, start: Any, documents: Path) -> None:
    with start(make()) as server:
        status, _, text = get(server, "/document?source=atlas/rivers.md")
        assert status == 404 and "--documents" in text and json.loads(text)["error"]["code"] == "not_found"
    with start(make(), documents=documents) as server:
        status, headers, text = get(server, "/document?source=atlas/rivers.md")
        assert status == 200 and headers["content-type"].startswith("text/plain") and "sandbox" in str(headers)
        assert "<script>" in text
        for path in ("secret.txt", "../secret.txt", "atlas/../secret.txt", "/etc/passwd"):
            assert get(server, f"/document?source={path}")[0] == 404


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="a file that its owner cannot read either: of Linux")
def test_a_file_that_cannot_be_read_is_told(make: Any, start: Any, tmp_path: Path) -> None:
    service = make()
    passages = [Passage("p", "A page.", source="mem")]
    service.served["rag"].program.retriever = build_index(passages, tmp_path / "i", "bm25", progress=False)
    with start(service, documents=Path("/proc/self")) as server:
        status, _, text = get(server, "/document?program=rag&source=mem")
    assert status == 500 and "cannot read 'mem' (Input/output error)" in json.loads(text)["error"]["message"]


def test_a_file_that_is_no_text_is_handed_out_to_be_saved(make: Any, start: Any, tmp_path: Path) -> None:
    held = b"PK\x03\x04 bytes"
    names = ["manual.docx", "packed.txt.gz"]
    for name in names:
        (tmp_path / name).write_bytes(held)
    service = make()
    passages = [Passage(name, "A page.", source=name) for name in names]
    service.served["rag"].program.retriever = build_index(passages, tmp_path / "i", "bm25", progress=False)
    with start(service, documents=tmp_path) as server:
        for name in names:
            status, headers, text = get(server, f"/document?program=rag&source={name}")
            assert (status, text) == (200, held.decode()) and headers["content-type"] == "application/octet-stream"
            assert headers["content-disposition"] == f'attachment; filename="{name}"'


def test_what_a_filter_leaves_out_is_not_shown_either(rivers: Any, make: Any, start: Any) -> None:
    service = make()
    service.served["rag"].program.retriever = rivers.where("section = 'Oltrey'")
    with start(service) as server:
        assert get(server, "/source?program=rag&pid=r1")[0] == 404


def test_over_an_index_server_sources_are_shown_as_over_its_folder(
    rivers: Any, make: Any, start: Any, tmp_path: Path
) -> None:
    """Each citation on the page was a dead link there."""
    (tmp_path / "atlas").mkdir()
    (tmp_path / "atlas" / "rivers.md").write_text("The rivers.")
    service = make()
    with IndexServer(rivers) as behind:
        thread = threading.Thread(target=behind.serve, daemon=True)
        thread.start()
        service.served["rag"].program.retriever = remote = RemoteIndex(behind.url)
        with start(service, documents=tmp_path) as server:
            assert json.loads(get(server, "/source?program=rag&pid=r1")[2]) == source_of(rivers, "r1")
            assert get(server, "/source?program=rag&pid=r'1")[0] == 404
            assert get(server, "/document?program=rag&source=atlas/rivers.md")[2] == "The rivers."
            service.served["rag"].program.retriever = remote.where("section = 'Oltrey'")
            assert get(server, "/source?program=rag&pid=r1")[0] == 404
        behind.stop()
        thread.join()


def test_a_source_is_the_named_programs_and_shows_its_own_document(make: Any, start: Any, documents: Path) -> None:
    service = make()
    (documents / "own.md").write_text("Own.")
    found = [Passage("own.md#1", "Own.", "Own", source="own.md"), Passage("b", "Another's.", "B", source="b.md")]
    service.served["own"] = Served("own", SimpleNamespace(retriever=SimpleNamespace(passages=found)))
    with start(service, documents=documents) as server:
        shown = json.loads(get(server, "/source?program=own&pid=own.md%231")[2])
        assert [one["pid"] for one in shown["context"]] == ["own.md#1"]
        assert get(server, "/document?program=own&source=own.md")[2] == "Own."
        for path in ("/source?pid=own.md%231", "/document?source=own.md", "/source?program=own&pid=r1"):
            assert get(server, path)[0] == 404


def test_a_document_may_have_an_apostrophe_in_its_name(tmp_path: Path) -> None:
    found = [Passage(f"it's.md#{number}", f"Part {number}.", "It", source="it's.md") for number in (1, 2)]
    index = build_index(found, tmp_path / "index", "bm25", progress=False)
    (tmp_path / "it's.md").write_text("Parts.")
    assert len(source_of(index, "it's.md#1")["context"]) == 2
    assert document_of(tmp_path, index, "it's.md").path.name == "it's.md"


def test_a_body_without_a_length_is_limited_as_a_whole() -> None:
    parts = [{"type": "http.request", "body": b"x" * 1_500, "more_body": more} for more in (True, False)]
    refused = list[str]()

    async def receive() -> Any:
        return parts.pop(0)

    async def read() -> None:
        limited = _limited(receive, 2_000, refused.append)
        await limited()
        await limited()

    with pytest.raises(BodyTooLarge):
        anyio.run(read)
    assert refused == ["body"]
