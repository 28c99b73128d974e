import contextlib, hmac, http.server, itertools, json, os, socket, sys, threading, traceback, urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_tool

NAMES = {"model_revision": "revision", "trust_remote_code": "trust_remote_code"}
ASKED = 16 << 20
HEADER = 1 << 16
ROWS = 64
TOKENS = 1 << 22
STRANGERS = 64
OPEN = "/health"
IDLE = 300
WAIT = 3600


def connect(given, config):
    fields = {"use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": os.environ["TRAINER_GENERATION_URL"]}
    use_token()
    if given["backend"] == "transformers":
        use_http()
    if config.get("vllm_server_timeout") is None:
        fields["vllm_server_timeout"] = WAIT
    run_tool.say(f"generates at {fields['vllm_server_base_url']}, with {given['backend']}")
    return fields


def credentials():
    return "Bearer " + os.environ["TRAINER_GENERATION_TOKEN"]


def is_trusted(path, given):
    return path == OPEN or hmac.compare_digest(given, credentials().encode())


def use_token():
    from trl.generation.vllm_client import VLLMClient

    check = VLLMClient.check_server

    def sign(request):
        request.headers["Authorization"] = credentials()
        return request

    def check_server(self, *args, **named):
        self.session.auth = sign
        return check(self, *args, **named)

    VLLMClient.check_server = check_server


class Guard:
    """Middleware of vLLM, whose own API keys leave the routes open that replace the weights."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        headers = dict(scope.get("headers", ()))
        if scope["type"] == "lifespan" or is_trusted(scope["path"], headers.get(b"authorization", b"")):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})


def use_http():
    from trl.generation import vllm_client, vllm_generation

    class Client(vllm_client.VLLMClient):
        def init_communicator(self, device=0):
            pass

        def update_named_params(self, metadata, named_params):
            from safetensors.torch import save

            self._start_weight_update()
            for name, tensor in named_params:
                data = save({name: tensor.detach().cpu().contiguous()})
                self._post(f"{self.base_url}/update_weights", data=data)
            self._finish_weight_update()

    vllm_client._HAS_RESET_PREFIX_CACHE_SUCCESS = True
    for module in (vllm_client, vllm_generation):
        module.is_vllm_available = lambda *_, **__: True
    vllm_generation.VLLMClient = Client


class Refused(Exception):
    pass


def need(holds, why):
    if not holds:
        raise Refused(why)


def number(asked, name, default, low, high, kind=(int, float)):
    value = asked.get(name)
    value = default if value is None else value
    right = isinstance(value, kind) and not isinstance(value, bool) and low <= value <= high
    need(right, f"{name} must be a number from {low} to {high}")
    return value


class Generator:
    KNOWN = {
        "model", "prompt", "n", "repetition_penalty", "temperature", "top_p", "top_k", "min_p", "max_tokens", "logprobs",
        "seed", "return_token_ids", "return_tokens_as_token_ids",
    }  # fmt: skip

    def __init__(self, path, options, seed):
        import torch, transformers

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        load = transformers.AutoModelForCausalLM.from_pretrained
        self.model = load(path, dtype=torch.float32, **options).to(self.device).eval()
        self.name, self.torch, self.lock = path, torch, threading.Lock()
        self.parameters = dict(self.model.named_parameters())
        self.vocabulary = self.model.get_input_embeddings().num_embeddings
        self.longest = getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or TOKENS
        ends = self.model.generation_config.eos_token_id
        self.ends = ends if isinstance(ends, list) else [each for each in (ends,) if each is not None]
        self.random = torch.Generator(self.device).manual_seed(seed)
        self.updates = 0
        self.most = 8 * max(each.numel() for each in self.parameters.values()) + HEADER

    def update(self, body):
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            tensors = load(body)
        except (SafetensorError, ValueError, OverflowError) as error:
            raise Refused(f"not a file of safetensors: {error}") from None
        for name, tensor in tensors.items():
            need(name in self.parameters, f"the model has no parameter {name!r:.200}")
            own = self.parameters[name]
            need(tensor.is_floating_point() and tensor.shape == own.shape, f"{name} must be of shape {[*own.shape]}")
        with self.lock, self.torch.no_grad():
            for name, tensor in tensors.items():
                self.parameters[name].copy_(tensor)

    def finish(self):
        self.updates += 1
        print(f"pulumi-trainer: got new weights, update {self.updates}", flush=True)

    def complete(self, asked):
        need(isinstance(asked, dict), "must be a JSON object")
        need(not asked.keys() - self.KNOWN, f"not supported: {', '.join(sorted(map(str, asked.keys() - self.KNOWN)))}")
        prompts = asked.get("prompt")
        need(isinstance(prompts, list) and prompts, "prompt must be a list of prompts as lists of tokens")
        for ids in prompts:
            known = isinstance(ids, list) and all(type(each) is int and 0 <= each < self.vocabulary for each in ids)
            need(known and ids, "prompt must be a list of prompts as lists of tokens")
        n, new = number(asked, "n", 1, 1, 1024, int), number(asked, "max_tokens", 16, 1, TOKENS, int)
        need(asked.get("logprobs") in (None, 0), "logprobs must be 0: only those of the sampled tokens are known")
        longest = max(map(len, prompts)) + new
        need(longest <= self.longest, f"prompt and completion have {longest} tokens, the model takes {self.longest}")
        need(len(prompts) * n * longest <= TOKENS, f"more than {TOKENS} tokens")
        sample, random = self.sampler(asked), self.random
        if asked.get("seed") is not None:
            random = self.torch.Generator(self.device).manual_seed(number(asked, "seed", 0, 0, 2**63 - 1, int))
        rows = [*itertools.chain.from_iterable([ids] * n for ids in prompts)]
        with self.lock, self.torch.no_grad():
            parts = [self.generate(rows[at : at + ROWS], new, sample, random) for at in range(0, len(rows), ROWS)]
        return [choice(at, rows[at], *each) for at, each in enumerate(itertools.chain.from_iterable(parts))]

    def sampler(self, asked):
        temperature, top_p = number(asked, "temperature", 1.0, 0, 100), number(asked, "top_p", 1.0, 1e-6, 1)
        top_k, min_p = number(asked, "top_k", 0, -1, self.vocabulary, int), number(asked, "min_p", 0.0, 0, 1)
        penalty = number(asked, "repetition_penalty", 1.0, 1e-3, 100)
        import transformers

        chosen = transformers.LogitsProcessorList()
        if penalty != 1:
            chosen.append(transformers.RepetitionPenaltyLogitsProcessor(float(penalty)))
        if temperature not in (0, 1):
            chosen.append(transformers.TemperatureLogitsWarper(float(temperature)))
        if min_p:
            chosen.append(transformers.MinPLogitsWarper(float(min_p)))
        if top_k > 0:
            chosen.append(transformers.TopKLogitsWarper(top_k))
        if top_p < 1:
            chosen.append(transformers.TopPLogitsWarper(float(top_p)))

        def sample(ids, logits, random):
            logprobs = chosen(ids, logits.float()).log_softmax(-1)
            drawn = (
                logprobs.exp().multinomial(1, generator=random) if temperature else logprobs.argmax(-1, keepdim=True)
            )
            return drawn, logprobs.gather(1, drawn)

        return sample

    def generate(self, rows, new, sample, random):
        torch, longest = self.torch, max(map(len, rows))
        ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows], device=self.device)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=self.device)
        ends = torch.tensor(self.ends, device=self.device, dtype=torch.long)
        made: list = [([], []) for _ in rows]
        fed, cache = ids, None
        going = [True] * len(rows)
        for _ in range(new):
            places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -fed.shape[1] :]
            out = self.model(
                input_ids=fed,
                attention_mask=mask,
                position_ids=places,
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            )
            cache = out.past_key_values
            fed, scores = sample(ids, out.logits[:, -1], random)
            for at, (token, score) in enumerate(zip(fed[:, 0].tolist(), scores[:, 0].tolist())):
                if going[at]:
                    made[at][0].append(token)
                    made[at][1].append(score)
            stopped = torch.isin(fed[:, 0], ends).tolist()
            going = [goes and not stops for goes, stops in zip(going, stopped)]
            if not any(going):
                break
            ids, mask = torch.cat([ids, fed], 1), torch.cat([mask, torch.ones_like(fed)], 1)
        return [(tokens, scores, "length" if goes else "stop") for (tokens, scores), goes in zip(made, going)]


def choice(at, prompt, tokens, scores, reason):
    names = [f"token_id:{each}" for each in tokens]
    tops = [{name: score} for name, score in zip(names, scores)]
    logprobs = {"tokens": names, "token_logprobs": scores, "top_logprobs": tops}
    about = {"index": at, "text": "", "finish_reason": reason, "logprobs": logprobs}
    return {**about, "prompt_token_ids": prompt, "token_ids": tokens}


class Handler(http.server.BaseHTTPRequestHandler):
    server: "Server"
    protocol_version = "HTTP/1.1"
    timeout = IDLE

    def log_message(self, *_):
        pass

    def parse_request(self):
        if not super().parse_request():
            return False
        path, given = urllib.parse.urlsplit(self.path).path, self.headers.get("Authorization", "")
        if not is_trusted(path, given.encode(errors="replace")):
            self.close_connection = True
            self.answer(401, {"error": "the token of the job is missing or wrong"})
            return False
        if path != OPEN:
            self.server.trust(self.connection)
        return True

    def do_GET(self):
        model = self.server.generator
        info = {"weight_transfer_config": {"backend": "http"}, "model_config": {"logprobs_mode": "processed_logprobs"}}
        found = {
            "/health": {},
            "/v1/models": {"object": "list", "data": [{"id": model.name, "object": "model"}]},
            "/get_world_size": {"world_size": 1},
            "/server_info": {"vllm_config": info},
        }.get(urllib.parse.urlsplit(self.path).path)
        self.answer(200 if found is not None else 404, {"error": "not found"} if found is None else found)

    def do_POST(self):
        model = self.server.generator
        actions = {
            "/v1/completions": (ASKED, lambda body: {"choices": model.complete(json.loads(body))}),
            "/update_weights": (model.most, model.update),
            "/start_weight_update": (HEADER, lambda _: None),
            "/finish_weight_update": (HEADER, lambda _: model.finish()),
            "/reset_prefix_cache": (HEADER, lambda _: {"success": True}),
        }
        most, act = actions.get(urllib.parse.urlsplit(self.path).path, (0, None))
        length = self.headers.get("Content-Length", "0")
        valid = length.isascii() and length.isdigit() and len(length) < 16
        if act is None or not valid or int(length) > most:
            self.close_connection = True
            self.answer(404 if act is None else 413, {"error": f"not found, or more than {most} bytes"})
            return
        try:
            self.answer(200, act(self.rfile.read(int(length))) or {})
        except (Refused, ValueError, RecursionError) as error:
            self.answer(400, {"error": str(error)[:1000]})
        except Exception:
            traceback.print_exc()
            self.answer(500, {"error": "see the log of the server"})

    def answer(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address, generator):
        self.generator, self.strangers, self.lock = generator, {}, threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)

    def process_request(self, request, client_address):
        with self.lock:
            self.strangers[request] = None
            if len(self.strangers) > STRANGERS:
                oldest = next(iter(self.strangers))
                del self.strangers[oldest]
                with contextlib.suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def trust(self, request):
        with self.lock:
            self.strangers.pop(request, None)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.trust(request)

    def handle_error(self, request, client_address):
        pass


def vllm_command(given, model, options, host, port):
    import torch

    size = given.get("tensor_parallel_size") or torch.cuda.device_count()
    argv = [sys.executable, "-m", "trl.scripts.vllm_serve", "--model", model, "--tensor_parallel_size", str(size)]
    argv += ["--host", host, "--port", str(port), "--middleware", "run_generation.Guard"]
    argv += ["--revision", options["revision"]] if options.get("revision") else []
    argv += ["--trust_remote_code", "true"] if options.get("trust_remote_code") else []
    return [*argv, *itertools.chain.from_iterable(itertools.starmap(option, (given.get("config") or {}).items()))]


OF_TRL = {
    "data_parallel_size", "gpu_memory_utilization", "dtype", "max_model_len", "enable_prefix_caching", "enforce_eager",
    "kv_cache_dtype", "log_level", "vllm_model_impl", "distributed_executor_backend", "speculative_config", "revision",
    "trust_remote_code",
}  # fmt: skip


def option(name, value):
    name = name.replace("-", "_")
    text = json.dumps(value) if isinstance(value, (dict, list, bool)) else str(value)
    if name in OF_TRL:
        return [f"--{name}", text]
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", text]


def serve():
    job = run_tool.job()
    given, config = job["generation"], run_tool.without_tokens(job["config"])
    config = {**config, **run_tool.fetched(config, model="model_name_or_path")}
    model = config["model_name_or_path"]
    options = {own: config[name] for name, own in NAMES.items() if config.get(name)}
    host, port = os.environ["TRAINER_GENERATION_HOST"], int(os.environ["TRAINER_GENERATION_PORT"])
    if given["backend"] == "vllm":
        argv = vllm_command(given, model, options, host, port)
        print("pulumi-trainer: starts", *argv[1:], flush=True)
        paths = [os.path.dirname(os.path.abspath(__file__)), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        os.execv(argv[0], argv)
    if given.get("config"):
        print(f"pulumi-trainer: not used without GPUs: {', '.join(given['config'])}", flush=True)
    seed = config.get("seed")
    generator = Generator(model, options, seed if isinstance(seed, int) and seed >= 0 else 42)
    server = Server((host, port), generator)
    print(f"pulumi-trainer: generates with {model} at {host}:{port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve()
