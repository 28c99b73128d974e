import contextlib, functools, importlib.util, json, math, os, sys, tempfile, time, traceback
from typing import NoReturn

from pulumi_trainer.provider.pod import training
from pulumi_trainer.provider.pod.shared import check_data, training_ranks

here = os.path.dirname(os.path.abspath(__file__))
OTHER_DATASETS = ("datasets", "tokenized_path")
TOKENS = ("hub_token", "hf_hub_token", "token")


def job():
    with open(here + "/func_args.json", encoding="utf-8") as file:
        return json.load(file)


def say(text):
    if os.environ.get("RANK", "0") == "0":
        print(f"pulumi-trainer: {text}", flush=True)


def without_tokens(given):
    for name in TOKENS:
        if given.get(name):
            os.environ["HF_TOKEN"] = given[name]
    return {name: value for name, value in given.items() if name not in TOKENS}


def fetched(given, **kinds):
    own = {}
    for kind, name in kinds.items():
        folder = os.environ.get(f"TRAINER_{kind.upper()}_DIR")
        if folder:
            own[name] = folder + str(given.get(name) or "").removeprefix("/workspace/" + kind)
    folder = os.environ.get("TRAINER_DATASET_DIR")
    for name in OTHER_DATASETS:
        if folder and given.get(name):
            own[name] = moved(given[name], {"/workspace/dataset": folder})
    if "datasets" in own:  # TRL reads these alone
        own.pop("dataset_name", None)
    return own


def moved(value, folders):
    if isinstance(value, dict):
        return {name: moved(each, folders) for name, each in value.items()}
    if isinstance(value, list):
        return [moved(each, folders) for each in value]
    for start, folder in folders.items():
        if folder and isinstance(value, str) and (value + "/").startswith(start + "/"):
            return folder.rstrip("/") + value[len(start) :]
    return value


def config(given, model, dataset):
    given = without_tokens(given)
    own = fetched(given, model=model, dataset=dataset)
    points = training.checkpoints()
    own["output_dir"] = points.folder or in_output(given.get("output_dir")) or os.environ.get("TRAINER_OUTPUT_DIR", "")
    if points.folder:
        own["save_total_limit"] = points.keep
        if os.environ.get("TRAINER_CHECKPOINT_STEPS") or os.environ.get("TRAINER_CHECKPOINT_EVERY"):
            own["save_strategy"] = "no"
    if points.latest():
        own["resume_from_checkpoint"] = points.latest()
    own = {**device(given), **own}
    if own:
        say("sets " + ", ".join(f"{name}={value!r}" for name, value in own.items()))
    return {"disable_tqdm": True, "logging_steps": 10, **given, **own}


def in_output(chosen):
    folder = os.environ.get("TRAINER_OUTPUT_DIR")
    inside = folder and f"{chosen}/".startswith("/workspace/output/")
    return folder + chosen.removeprefix("/workspace/output") if inside else chosen


def result_folder(chosen):
    folder = os.environ.get("TRAINER_OUTPUT_DIR")
    inside = folder and f"{chosen}/".startswith(f"{folder}/") and not training.checkpoints().folder
    return chosen if inside else folder or chosen


def refuse(why, hint) -> NoReturn:
    text = f"pulumi-trainer: {why}. Hint: {hint}"
    about = {"message": text, "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))}}
    with contextlib.suppress(KeyError, OSError), open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        json.dump({"message": about}, file)
    if "PULUMI_TRAINER_LAYER" not in os.environ:
        with contextlib.suppress(OSError), open("/dev/termination-log", "r+", encoding="utf-8") as file:
            report = file.readline()
            file.seek(len(report.encode()) if report.startswith('{"pulumi-trainer"') else 0)
            file.write(text[:2000])
            file.truncate()
    sys.exit(text)


def fail(why, hint) -> NoReturn:
    with contextlib.suppress(KeyError, OSError):
        open(os.environ["TRAINER_FINAL_FILE"], "w").close()
    refuse(why, hint)


def fail_all(fault):
    (failed,) = training_ranks.reduce_values([int(bool(fault))], "MAX")
    if failed:
        fail(*(training_ranks.from_rank_0(fault) or fault or ("a rank has weights that are not finite", NAN_HINT)))


def device(given):
    import torch

    if torch.cuda.is_available() and not torch.cuda.is_bf16_supported(including_emulation=False):
        asked = [name for name in ("bf16", "bf16_full_eval", "pure_bf16", "tf32") if given.get(name) is True]
        if asked:
            why = f"{asked[0]} is True, and {torch.cuda.get_device_name()} has no {asked[0].split('_')[0]}"
            refuse(f"{why}: it begins with NVIDIA's Ampere (A100, A10)", 'config={"fp16": True} instead, or newer GPUs')
        return {"bf16": False} if given.get("bf16") is None else {}
    if torch.cuda.is_available() or (getattr(torch, "accelerator", None) and torch.accelerator.is_available()):
        return {}
    if job().get("gpu"):
        sys.exit("pulumi-trainer: the job asks for GPUs, and torch finds none: the image or the driver does not fit")
    return {name: value for name, value in (("use_cpu", True), ("bf16", False)) if given.get(name) is None}


def check_models(config):
    from transformers.utils import cached_file

    for field in ("model_name_or_path", "teacher_model_name_or_path", "reward_model_name_or_path"):
        name = config.get(field)
        if not isinstance(name, str) or not name:
            continue
        if os.path.isdir(name) or name[0] in "/.~":
            if fault := check_data.model_fault(name):
                refuse(f"{field}: {fault[0]}", fault[1])
        elif not {"USE_MODELSCOPE_HUB", "USE_OPENMIND_HUB"} & os.environ.keys():
            try:
                own = "teacher_model_revision" if field.startswith("teacher") else "model_revision"
                cached_file(name, "config.json", revision=config.get(own) or "main")
            except (OSError, ValueError) as error:
                words = " ".join(str(error).split())
                if "does not appear to have a file named" in words:
                    continue
                hint = "correct the name; a gated or private model needs HF_TOKEN in env, and the nodes need the hub"
                refuse(f"{field}: the base model {name!r} cannot be read: {words.rstrip('.')}", hint)


def check_datasets(method, config):
    import datasets

    load = datasets.load_dataset

    @functools.wraps(load)
    def checked(path, *names, **given):
        try:
            found = load(path, *names, **given)
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            words = " ".join(f"{type(error).__name__}: {error}".split())
            refuse(f"the dataset {path!r} cannot be read: {words.rstrip('.')}", "correct dataset_name, or its files")
        for field, default in (("dataset_train_split", "train"), ("dataset_test_split", "test")):
            split = config.get(field) or default
            if path != config.get("dataset_name") or not isinstance(found, dict):
                continue
            if default == "test" and str(config.get("eval_strategy") or "no") == "no":
                continue
            fault = check_data.split_fault(field, split, found)
            columns = None if fault else found[split].column_names
            if columns:
                fault = check_data.columns_fault(method, config, columns)
            if fault:
                refuse(*fault)
        return found

    datasets.load_dataset = checked


METRICS = ("loss", "grad_norm", "eval_loss")
NAN_HINT = 'a lower "learning_rate", or "bf16" instead of "fp16"; resume=False leaves the checkpoints of this run alone'
KNOWN = (
    ("training-compatible", check_data.TEMPLATE_HINT),
    ("no assistant tokens", check_data.TEMPLATE_HINT),
    ("the dataset is not conversational", "leave assistant_only_loss out, or give a dataset with messages"),
)


@contextlib.contextmanager
def explained():
    try:
        yield
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        for part, hint in KNOWN:
            if part in words:
                traceback.print_exc()
                refuse(words.rstrip("."), hint)
        raise


def callbacks():
    from transformers import Trainer, TrainerCallback

    Trainer.train = up_to_the_last_step(Trainer.train)

    class End(TrainerCallback):
        first = 0
        metrics: dict = {}

        def on_train_begin(self, args, state, control, optimizer=None, lr_scheduler=None, train_dataloader=None, **_):
            self.first, self.metrics = state.global_step, {}
            say(f"world size {args.world_size}, from step {state.global_step} to {state.max_steps}")
            if self.first:
                fail_all(length_fault(args, state, train_dataloader))
                set_learning_rate(args.learning_rate, [optimizer], lr_scheduler)
                set_adam_fields(args, optimizer)

        def on_epoch_begin(self, args, state, control, **_):
            if self.first and self.first >= state.max_steps:
                raise NothingLeft

        def on_log(self, args, state, control, logs=None, **_):
            for name in METRICS:
                value = (logs or {}).get(name)
                if value is not None and not (args.fp16 and name == "grad_norm" and is_finite(self.metrics.get(name))):
                    self.metrics[name] = value  # of fp16, the first finite norm stays: its scaler skips single steps

        def on_train_end(self, args, state, control, model=None, train_dataloader=None, **_):
            if training.should_stop():
                say(f"stops at step {state.global_step} of {state.max_steps}")
                sys.exit()
            why = rows_fault(args, train_dataloader) if train_dataloader is not None else None
            fault = no_step_fault(self.first, state.global_step, state.max_steps, why)
            fail_all(fault or nan_fault(self.metrics) or weights_fault(model))
            args.output_dir = result_folder(args.output_dir)

    return [training.callback(), End()]


class NothingLeft(Exception):
    pass


def up_to_the_last_step(train):
    @functools.wraps(train)
    def ending(trainer, *given, **options):
        try:
            return train(trainer, *given, **options)
        except NothingLeft:  # Transformers would do one more step in an epoch that is not complete
            from transformers.trainer_utils import TrainOutput

            trainer.callback_handler.on_train_end(trainer.args, trainer.state, trainer.control)
            return TrainOutput(trainer.state.global_step, 0.0, {})

    return ending


def no_step_fault(first, last, total, why):
    if last > first:
        return None
    if first and first >= total:
        say(f"nothing was left to do (0 steps): the checkpoint is of step {first} of {total}")
        return None
    about, hint = why or ("", "correct the fields that decide the number of steps")
    return f"0 of {total - first} steps were done{about}, so the model is not trained", hint


def length_fault(args, state, loader):
    if args.max_steps > 0 or not state.max_steps or state.epoch is None:
        return None
    steps = state.max_steps / args.num_train_epochs
    here = state.global_step / steps
    if abs(here - state.epoch) * steps < 2.5:  # the number of steps is rounded
        return None
    rows = f" of {len(loader.dataset)} rows" if hasattr(getattr(loader, "dataset", None), "__len__") else ""
    batch = batch_text(args.per_device_train_batch_size, args.world_size, args.gradient_accumulation_steps)
    why = (
        f"the checkpoint of step {state.global_step} is at epoch {state.epoch:.4g}, but with {batch} an epoch{rows} has "
        f"{steps:g} steps, so the run would go on at epoch {here:.4g} of {args.num_train_epochs:g}"
    )
    return why, (
        "ranks, batch size, accumulation and data of the run before, or max_steps instead of epochs; "
        "resume=False starts anew"
    )


def set_learning_rate(wanted, optimizers, scheduler):
    groups = []
    for optimizer in optimizers:
        groups += optimizer.param_groups
    scheduler = getattr(scheduler, "scheduler", scheduler)  # accelerate's has that of torch
    rates = getattr(scheduler, "base_lrs", None)
    if scheduler is not None and not rates:
        rate = float(groups[0]["lr"])
        say(f"the learning rate is that of the checkpoint, {rate:g}, which {type(scheduler).__name__} decides")
        return
    before = float(rates[0] if rates else groups[0]["lr"])
    if not before or math.isclose(before, wanted):
        return
    for group in groups:
        for name in {"lr", "initial_lr"} & group.keys():
            group[name] = group[name] * (wanted / before)
    if scheduler is not None and rates:
        scheduler.base_lrs = [rate * (wanted / before) for rate in rates]
        scheduler._last_lr = [group["lr"] for group in groups]  # which the log of the next step has
    say(f"the learning rate is {wanted:g}, and not that of the checkpoint, {before:g}")


def set_adam_fields(args, optimizer):
    kind = str(getattr(args, "optim", "")).rpartition(".")[2]  # of an enumeration of Transformers, or a text
    if not kind.lower().startswith("adamw"):
        return  # other optimizers have fields of their own
    groups = optimizer.param_groups
    fields = {"weight_decay": args.weight_decay, "betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon}
    for name, wanted in fields.items():
        having = [group for group in groups if group.get(name)]  # those without weight decay have 0
        before = having[0][name] if having else 0
        if before in (wanted, [*wanted] if name == "betas" else wanted):
            continue
        if not having:
            say(f"{name} stays that of the checkpoint, 0, and is not {wanted}: no parameters are known to have it")
            continue
        for group in having:
            group[name] = wanted
        say(f"{name} is {wanted}, and not that of the checkpoint, {before}")


def rows_fault(args, loader):
    try:
        rows, batches = len(loader.dataset), len(loader)
    except (AttributeError, TypeError):  # a stream has no length
        return ": the dataset has no row that is left", "another dataset, or fewer steps"
    if batches:
        return None
    why = f": the dataset has {rows} rows, fewer than {batch_text(args.per_device_train_batch_size, args.world_size)}"
    return f"{why}, and dataloader_drop_last leaves them out", 'a smaller "per_device_train_batch_size"'


def batch_text(each, ranks, accumulated=1):
    text = f"{each} per device * {ranks} {'rank' if ranks == 1 else 'ranks'}"
    if accumulated > 1:
        text += f" * {accumulated} accumulated"
    return f"a batch of {each * ranks * accumulated} ({text})"


def nan_fault(metrics):
    wrong = [name for name, value in metrics.items() if not is_finite(value)]
    if not wrong:
        return None
    return f"{wrong[0]} is {float(metrics[wrong[0]])} at the end of the training, so the model is not usable", NAN_HINT


def is_finite(value):
    return value is not None and math.isfinite(value)


def weights_fault(model):
    for name, weights in model.named_parameters() if model is not None else ():
        part = weights.to_local() if hasattr(weights, "to_local") else weights
        if weights.requires_grad and part.is_floating_point() and not bool(part.detach().isfinite().all()):
            return f"{name} is not finite at the end of the training, so the model is not usable", NAN_HINT
    return None


def rewards(names):
    with open(here + "/launch.json", encoding="utf-8") as file:
        places = json.load(file)["rewards"]
    return [checked(getattr(reward_module(at, places[at]), name)) for at, name in enumerate(names)]


def reward_module(at, place):
    # A copy with the user's file name and line numbers, for tracebacks.
    file = f"{tempfile.mkdtemp(prefix='main.py-')}/{place.get('file', f'reward_{at}.py')}"
    before, missing = place.get("lines", (0, 0))
    with open(f"{here}/reward_{at}.py", encoding="utf-8", newline="") as script:
        lines = script.read().split("\n")
    lines[before:before] = [""] * missing
    os.makedirs(os.path.dirname(file), exist_ok=True)
    with open(file, "w", encoding="utf-8", newline="") as copy:
        copy.write("\n".join(lines))
    spec = importlib.util.spec_from_file_location(f"reward_{at}", file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def checked(function):
    name = function.__name__
    hint = "the log has its traceback; a function may return None for a completion that it cannot score"

    @functools.wraps(function)
    def score(completions, **given):
        try:
            found = function(completions=completions, **given)
        except Exception as error:
            traceback.print_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
            own = [each for each in traceback.extract_tb(error.__traceback__)[1:] if each.line]
            at = f" in line {own[0].lineno}, `{own[0].line}`" if own else ""
            refuse(f"the reward function {name} raised {type(error).__name__}{at}: {error}", hint)
        if size := unlike_scores(found, len(completions)):
            why = f"the reward function {name} returned {size} for {len(completions)} completions"
            refuse(why, "return one number for each completion, or None for one that it cannot score")
        return found

    return score


def unlike_scores(found, wanted):
    if isinstance(found, (str, bytes, dict)) or not hasattr(found, "__len__"):
        return f"{type(found).__name__} {short_repr(found)}" if found is not None else "None"
    if len(found) != wanted:
        return "1 value" if len(found) == 1 else f"{len(found)} values"
    for at, each in enumerate(found):
        if each is not None and not is_number(each):
            return f"{type(each).__name__} {short_repr(each)} as score {at}"
    return ""


def is_number(value):
    if isinstance(value, (str, bytes)):
        return False
    try:
        float(value)  # tensors and NumPy's numbers too
    except (TypeError, ValueError, RuntimeError):
        return False
    return True


def short_repr(value):
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:100]}..."
