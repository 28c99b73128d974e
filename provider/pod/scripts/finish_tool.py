import contextlib, glob, importlib, importlib.metadata, json, os, shutil, subprocess, sys, time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import run_tool

from pulumi_trainer.provider.pod.shared import training_files, training_stop

training = run_tool.training
ENDED = "pulumi-trainer/ended"
WEIGHTS = (".safetensors", ".bin", ".pth", ".pt")
LAUNCHED = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
    "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
)  # fmt: skip


def options(config):
    revision = config.get("model_revision") or config.get("revision")
    given = {"revision": revision, "trust_remote_code": config.get("trust_remote_code")}
    return {name: value for name, value in given.items() if value}


@contextlib.contextmanager
def result(job, config, model="model_name_or_path"):
    base, merges = config[model], job.get("merge", False)
    folder = run_tool.result_folder(config["output_dir"])
    first = os.environ.get("RANK", "0") == "0"
    if merges:
        check_base(base, config)
    before = weights_in(folder)
    yield
    if first:
        check_written(folder, before)
    if merges and first:
        merge(base, folder, config)
    if first:
        write_card(folder)
    if merges:
        rendezvous(first)
    if first or os.environ.get("GROUP_RANK", "0") != "0":
        training.done()


def weights_in(folder):
    found = {}
    for path in glob.glob(f"{glob.escape(folder)}/*"):
        if path.endswith(WEIGHTS) and not path.endswith("/training_args.bin"):
            about = os.stat(path)
            found[path] = (about.st_size, about.st_ino, about.st_mtime_ns)
    return found


def check_written(folder, before):
    if weights_in(folder) == before:
        run_tool.fail(
            f"the training has ended, but it has written no model to {folder}",
            'its checkpoints may have it; with FSDP set "state_dict_type": "FULL_STATE_DICT" in "fsdp_config"',
        )


def check_base(base, config):
    from transformers import AutoConfig

    if getattr(AutoConfig.from_pretrained(base, **options(config)), "quantization_config", None):
        run_tool.refuse(
            f"merge_adapter: the weights of {base} are quantized, and an adapter is merged into 16 or 32 bits",
            "name the model that is not quantized (lora=LoraConfig(quantize_base=True) quantizes it for the training), or "
            "leave merge_adapter out",
        )


def merge(base, folder, config):
    made, target, former = (f"{folder}/{name}" for name in (".merging", "merged", ".merged-before"))
    shutil.rmtree(made, ignore_errors=True)
    run_tool.say(f"merges the adapter and {base} into {target}")
    env = {
        n: v for n, v in os.environ.items() if n not in LAUNCHED and not n.startswith(("TORCHELASTIC_", "ACCELERATE_"))
    }
    argv = [sys.executable, here + "/merge_adapter.py", base, folder, made, json.dumps(options(config))]
    done = subprocess.Popen(argv, env={**env, "CUDA_VISIBLE_DEVICES": ""}, stdin=subprocess.PIPE).wait()
    if done:
        why = f"merge_adapter: the adapter could not be merged (see above); it is in {folder}"
        run_tool.refuse(why, "fix the reason, or leave merge_adapter out")
    for file in glob.glob(f"{folder}/value_head.*"):
        shutil.copy(file, made)
    write_card(made, folder)
    for path in training_files.all_files(made):
        training_files.flush(path)
    shutil.rmtree(former, ignore_errors=True)
    if os.path.exists(target):
        os.rename(target, former)
    os.rename(made, target)
    shutil.rmtree(former, ignore_errors=True)
    run_tool.say(f"the merged model is in {target}")


def write_card(folder, adapter=""):
    try:
        model_card = importlib.import_module("model_card")
        facts = run_facts(adapter or folder, model_card.lora_text)
        is_adapter = not adapter and os.path.exists(folder + "/adapter_config.json")
        model_card.write(folder, facts, "peft" if is_adapter else "transformers")
    except Exception as error:  # a trained model is not lost for its card
        run_tool.say(f"the model card {folder}/README.md could not be written: {type(error).__name__}: {error}")


def run_facts(folder, lora_text):
    with open(here + "/card.json", encoding="utf-8") as file:
        facts = json.load(file)
    rows = {**facts["rows"], "Tool": f"{facts['title']} {importlib.metadata.version(facts['package'])}"}
    key, run = rows["Run"], os.environ.get("TRAINER_RUN_ID", "")
    if run:
        rows["Run"] = run if key == "1" else f'{run} (run="{key}")'
    rows["Steps"] = steps_text(training._shown)
    nodes, ranks = (os.environ.get(name, "1") for name in ("GROUP_WORLD_SIZE", "WORLD_SIZE"))
    rows["Nodes"] = nodes if nodes == ranks else f"{nodes}, with {ranks} processes in all"
    if os.path.exists(folder + "/adapter_config.json"):
        with open(folder + "/adapter_config.json", encoding="utf-8") as file:
            rows["LoRA"] = lora_text(json.load(file))
        facts["tags"].append("lora")
    return {**facts, "rows": rows}


def steps_text(shown):
    if shown.latest is None:
        return ""
    before, last = shown.resumed, shown.latest[0]
    return f"{before + 1} to {last}" if last > before else f"none: the weights are those of an earlier run, step {last}"


def rendezvous(first):
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return
    from torch.distributed import TCPStore

    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False)
    if first:
        store.set(ENDED, "1")
    while not first:
        try:
            if store.check([ENDED]):
                return
        except RuntimeError:
            return
        if training_stop.stop.signaled or os.path.exists(os.environ.get("TRAINER_STOP_FILE", "")):
            sys.exit()
        time.sleep(1)
