"""A retrieval server with faults on demand, and a language model that says what it is told.

The server is real: sockets, HTTP, the protocol. The model is the one mock of these tests: they need
a policy that makes exactly the mistakes under test.
"""

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast


class RetrievalServer:
    """Finds, for every query, the same passages: `contents`, or one that names the query.

    Between `hold()` and `release()` requests arrive and are not answered.
    """

    def __init__(self, listener=None):
        """`listener`: a socket that is bound already, for example by `closed_port`."""
        self.mode = "ok"  # ok, plain, rubbish, huge, overloaded, broken, refused, short, hang_up
        self.contents = None
        self.bodies = []
        self.lock = threading.Lock()
        self.connections = 0
        self.at_once = self.most_at_once = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                with server.lock:
                    server.connections += 1

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with server.lock:
                    server.bodies.append(body)
                    server.at_once += 1
                    server.most_at_once = max(server.most_at_once, server.at_once)
                server.released.wait()
                with server.lock:  # before the client can read the end of the answer and ask again
                    server.at_once -= 1
                with contextlib.suppress(OSError):
                    self.answer(body)

            def answer(self, body):
                mode, headers = server.mode, {}
                if mode == "hang_up":
                    self.close_connection = True
                    return
                status, content = 200, server.result(body, scored=mode != "plain")
                if mode == "rubbish":
                    content = b"<html>what?</html>"
                elif mode == "huge":
                    content = b'{"result": ["' + b"x" * (9 << 20) + b'"]}'
                elif mode == "short":
                    content = b'{"result": []}'
                elif mode in ("overloaded", "broken", "refused"):
                    status = {"overloaded": 503, "broken": 500, "refused": 422}[mode]
                    content = b"{}"
                    headers = {"Retry-After": "0"}
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

        self.released = threading.Event()
        self.released.set()
        self._server = Server(("127.0.0.1", 0), Handler, bind_and_activate=listener is None)
        if listener is not None:
            self._server.socket.close()
            self._server.socket = listener
            self._server.server_activate()
        self.url = url_of(self._server.socket)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def result(self, body, scored):
        def passages(query):
            found = self.contents
            if found is None:
                found = [f"About {query}\nThe text on {query}, number {i}." for i in range(9)]
            documents = [{"id": str(i), "contents": text} for i, text in enumerate(found)]
            documents = documents[: body["topk"]]
            if scored:
                return [{"document": document, "score": 1.0} for document in documents]
            return documents

        return json.dumps({"result": [passages(query) for query in body["queries"]]}).encode()

    @property
    def asked(self):
        return [query for body in self.bodies for query in body["queries"]]

    def hold(self):
        self.released.clear()

    def release(self):
        self.released.set()

    def stop(self):
        self.release()
        self._server.shutdown()
        self._server.server_close()


def url_of(listener):
    return f"http://127.0.0.1:{listener.getsockname()[1]}/retrieve"


@contextlib.contextmanager
def closed_port():
    """A socket with a port of its own that refuses connections until it listens.

    A port that a server has left may be anybody's in the next moment; this one is not.
    """
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound


@contextlib.contextmanager
def retrieval_server(listener=None):
    server = RetrievalServer(listener)
    try:
        yield server
    finally:
        server.stop()


# As Qwen2.5's: tools in the system message, observations in a user's turn, a newline after a turn.
QWEN_TEMPLATE = """{%- if messages[0]['role'] != 'system' -%}<|im_start|>system
You are helpful.<|im_end|>
{% endif -%}
{%- for m in messages -%}
{%- if m['role'] == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1]['role'] != 'tool' -%}<|im_start|>user{%- endif %}
<tool_response>
{{ m['content'] }}
</tool_response>
{%- if loop.last or messages[loop.index0 + 1]['role'] != 'tool' -%}<|im_end|>
{% endif -%}
{%- else -%}<|im_start|>{{ m['role'] }}
{{ m['content'] }}
{%- for call in m['tool_calls'] or [] -%}
{{ '\\n' if not loop.first or m['content'] else '' }}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|im_start|>assistant
{% endif -%}"""
# Another family's: other control tokens, two newlines after a turn.
OTHER_TEMPLATE = """{%- for m in messages -%}
<|turn|>{{ m['role'] }}: {{ m['content'] }}<|done|>{{ '\\n\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}<|turn|>{{ 'assistant: ' }}{%- endif -%}"""
WORDS = ["Dune", "Frank Herbert", " the", "Who wrote", "question"]


def build_tokenizer(template=QWEN_TEMPLATE, tags=("<tool_call>", "</tool_call>")):
    """Byte level, with a few whole words that can also be spelled out in bytes."""
    qwen = template is QWEN_TEMPLATE
    end, start = ("<|im_end|>", "<|im_start|>") if qwen else ("<|done|>", "<|turn|>")
    special = ["<|pad|>", start, end]
    vocabulary = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_tokens([AddedToken(t, special=False, normalized=False) for t in [*tags, *WORDS]])
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=end,
        pad_token="<|pad|>",
        additional_special_tokens=[start],
        clean_up_tokenization_spaces=False,
        chat_template=template,
    )


def spelled(tokenizer, text):
    """Ids of `text` character by character: not what the tokenizer would make of it."""
    return [token for character in text for token in tokenizer.encode(character)]


class ScriptedModel:
    """Takes verl's place of the LLM client: turn i of a rollout is `turns[i]` (text or ids)."""

    def __init__(self, tokenizer, turns, obeys_stops=True, log_probs=True, extra_fields=None):
        self.tokenizer = tokenizer
        self.turns = turns
        self.obeys_stops = obeys_stops
        self.log_probs = log_probs
        self.extra_fields = {"min_global_steps": 3, "max_global_steps": 3}
        if extra_fields is not None:
            self.extra_fields = extra_fields
        self.calls = []
        self.wrote = []

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        from verl.workers.rollout.replica import TokenOutput

        self.calls.append((list(prompt_ids), dict(sampling_params)))
        turn = self.turns[min(len(self.calls), len(self.turns)) - 1]
        if callable(turn):
            turn = await turn()
        ids = self.tokenizer.encode(turn) if isinstance(turn, str) else list(turn)
        ids = ids[: sampling_params["max_tokens"]]
        if self.obeys_stops:
            ids = self._stop(ids, sampling_params)
        self.wrote.append(ids)
        probs = [-len(self.calls) - i / 1000 for i in range(len(ids))] if self.log_probs else None
        return TokenOutput(
            token_ids=ids, log_probs=probs, num_preempted=0, extra_fields=dict(self.extra_fields)
        )

    def _stop(self, ids, params):
        for n in range(1, len(ids) + 1):
            text = self.tokenizer.decode(ids[:n])
            if ids[n - 1] in params.get("stop_token_ids", []) or any(
                text.endswith(stop) for stop in params.get("stop", [])
            ):
                return ids[:n]
        return ids
