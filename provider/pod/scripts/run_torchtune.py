import importlib.util, os, pathlib, secrets, shutil, sys, tempfile

sys.path.insert(0, __file__.rpartition("/")[0])
import finish_tool, run_tool
import torch
import torchtune
from omegaconf import OmegaConf
from pulumi_trainer.provider.pod.shared import training_state
from torchtune import config, training

WEIGHTS = (".safetensors", ".bin", ".pth", ".pt")
job, points = run_tool.job(), run_tool.training.checkpoints()
running: dict = {}
recipes = os.path.join(os.path.dirname(torchtune.__path__[0]), "recipes")
lacks = run_tool.device({})
on_cpu = "use_cpu" in lacks


def settings():
    base = OmegaConf.load(f"{recipes}/configs/{job['base']}.yaml")
    fetched = {kind: os.environ.get(f"TRAINER_{kind.upper()}_DIR") for kind in ("model", "dataset")}
    given = OmegaConf.create()
    for name, value in job["config"].items():
        OmegaConf.update(given, name, run_tool.moved(value, {f"/workspace/{kind}": fetched[kind] for kind in fetched}))
    start = base.checkpointer.checkpoint_dir.rstrip("/").removesuffix("/original")
    model = fetched["model"] or OmegaConf.select(given, "checkpointer.checkpoint_dir")
    made = OmegaConf.create(run_tool.moved(OmegaConf.to_container(base), {start: model}))
    for name, node in given.items():
        if OmegaConf.is_dict(node) and "_component_" in node and not name.endswith("checkpointer"):
            made[name] = {}
    made = OmegaConf.merge(made, given)
    if "lora_attn_modules" in made.model:  # the recipes read two fields that their model has a default for
        made.model = OmegaConf.merge({"apply_lora_to_mlp": False, "apply_lora_to_output": False}, made.model)
    for name, node in made.items():
        if name.endswith("checkpointer"):
            find_weights(node)
    made.tokenizer = {name: in_folder(model, value) for name, value in made.tokenizer.items()}
    for node in made.dataset if OmegaConf.is_list(made.dataset) else [made.dataset]:
        read_from(node, fetched["dataset"])
    made.output_dir = run_tool.result_folder(run_tool.in_output(given.get("output_dir"))) or points.folder
    if on_cpu:
        made.device = "cpu"
        made.enable_activation_offloading = given.get("enable_activation_offloading", False)
    if "bf16" in lacks:
        made.dtype = given.get("dtype", "fp32")
    if "save_adapter_weights_only" in made:
        made.save_adapter_weights_only = given.get("save_adapter_weights_only", True)
    if points.latest():
        resume(made, points.latest())
    return made


def in_folder(folder, name):
    if OmegaConf.is_list(name):
        return [in_folder(folder, each) for each in name]
    path = os.path.join(folder or "", str(name))
    return path if folder and isinstance(name, str) and os.path.exists(path) else name


def find_weights(node):
    folder, files = node.checkpoint_dir, node.checkpoint_files
    named = OmegaConf.is_list(files) and all(os.path.exists(f"{folder}/{name}") for name in files)
    folder = folder if os.path.isdir(folder) else folder.rstrip("/").removesuffix("/original")
    if named or OmegaConf.is_dict(files) or not os.path.isdir(folder):
        return
    listed = sorted(os.listdir(folder))
    kinds = [[name for name in listed if name.endswith(kind)] for kind in WEIGHTS]
    node.checkpoint_dir, node.checkpoint_files = folder, next(filter(None, kinds), [])
    if "config.json" in listed and node._component_.endswith("MetaCheckpointer"):
        node._component_ = "torchtune.training.FullModelHFCheckpointer"
    run_tool.say(f"takes {', '.join(node.checkpoint_files)} in {folder} by {node._component_}")


def read_from(node, folder):
    if folder and "data_files" in node:
        node.data_files = in_folder(folder, node.data_files)
    elif folder and not str(node.get("source")).startswith(folder):
        node.source = folder


def resume(made, folder):
    (epoch,) = (name for name in os.listdir(folder) if name.startswith("epoch_"))
    names = sorted(os.listdir(f"{folder}/{epoch}"))
    made.resume_from_checkpoint, made.checkpointer.output_dir = True, folder
    if "adapter_model.pt" not in names:
        files = [f"{epoch}/{name}" for name in names if name.startswith("model-") and name.endswith(WEIGHTS)]
        made.checkpointer.checkpoint_files = files


def instantiate(node, *arguments, **options):
    made = instantiates(node, *arguments, **options)
    if hasattr(made, "log_dict"):
        report_logs(made)
    if hasattr(made, "save_checkpoint"):
        place_checkpoints(made)
    return made


def report_logs(logger):
    log_dict = logger.log_dict

    def log(payload, step):
        running["metrics"] = {"loss": payload["loss"], **payload}
        report(step)
        log_dict(payload, step=step)

    logger.log_dict = log


def report(step):
    steps, epochs = running["recipe"]._steps_per_epoch, running["recipe"].total_epochs
    metrics = {**running.get("metrics", {}), "epoch": f"{step / steps:.4g}"}
    if running.get("step") != step:
        run_tool.training.progress(step=step, total=steps * epochs, **metrics)
    running["step"] = step


def place_checkpoints(checkpointer):
    save_checkpoint = checkpointer.save_checkpoint

    def save(state, epoch, intermediate_checkpoint=False, **options):
        if intermediate_checkpoint and not points.folder:
            return
        folder = points.folder if intermediate_checkpoint else output
        made = f"{folder}/.tmp-epoch-{epoch}-{secrets.token_hex(4)}"
        os.makedirs(made)
        checkpointer._output_dir = pathlib.Path(made)
        save_checkpoint(state, epoch=epoch, intermediate_checkpoint=intermediate_checkpoint, **options)
        if intermediate_checkpoint:
            points._adopt(made, running["recipe"].global_step)
        else:
            if not run_tool.nan_fault({"loss": running.get("metrics", {}).get("loss", 0)}):
                shutil.copytree(f"{made}/epoch_{epoch}", folder, dirs_exist_ok=True)
            shutil.rmtree(made)

    checkpointer.save_checkpoint = save


def without_gpu():
    training.get_memory_stats = lambda device, reset_stats=True: {}
    training.log_memory_stats = lambda stats, message="": None
    torch.cpu.empty_cache = torch.cpu.reset_peak_memory_stats = lambda: None
    init = torch.distributed.init_process_group

    def init_process_group(backend=None, *arguments, **options):
        return init("gloo" if "nccl" in str(backend) else backend, *arguments, **options)

    torch.distributed.init_process_group = init_process_group


def started(train):
    def with_progress(recipe):
        running["recipe"] = recipe
        recipe.global_step = recipe.epochs_run * recipe._steps_per_epoch
        first, last = recipe.global_step, recipe.total_epochs * recipe._steps_per_epoch
        run_tool.training._shown.resumed, size = first, torch.distributed.get_world_size()
        run_tool.say(f"world size {size}, from step {first} to {last}")
        if not recipe._steps_per_epoch:
            ranks = getattr(recipe, "data_parallel_dim", size)
            batch = run_tool.batch_text(made.batch_size, ranks, made.gradient_accumulation_steps)
            rows = len(recipe._dataloader.dataset)
            why = f"0 steps were done: the dataset has {rows} rows, fewer than {batch}, so the model is not trained"
            run_tool.fail(why, 'a smaller "batch_size", or more rows')
        if first:
            own = recipe._optimizer
            optimizers = [own] if own is not None else recipe._optim_ckpt_wrapper.optim_map.values()
            run_tool.set_learning_rate(made.optimizer.lr, optimizers, getattr(recipe, "_lr_scheduler", None))
            training_state.reset_optimizers(optimizers, run_tool.training.checkpoints().latest())
        train(recipe)
        report(recipe.global_step)
        fault = run_tool.no_step_fault(first, recipe.global_step, last, None)
        run_tool.fail_all(fault or run_tool.nan_fault({"loss": running.get("metrics", {}).get("loss", 0)}))

    return with_progress


if on_cpu:
    without_gpu()
instantiates, config.instantiate = config.instantiate, instantiate
made = settings()
output = made.output_dir
about = importlib.util.spec_from_file_location("torchtune_recipe", f"{recipes}/{job['method']}.py")
assert about and about.loader
recipe = sys.modules["torchtune_recipe"] = importlib.util.module_from_spec(about)
about.loader.exec_module(recipe)
bar = recipe.tqdm
setattr(recipe, "tqdm", lambda *arguments, **options: bar(*arguments, **{**options, "disable": True}))
for kind in vars(recipe).values():
    if isinstance(kind, type) and kind.__module__ == "torchtune_recipe" and "train" in vars(kind):
        setattr(kind, "train", started(vars(kind)["train"]))
with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
    OmegaConf.save(made, file.name)
    sys.argv[1:] = ["--config", file.name]
    written = finish_tool.weights_in(output)
    try:
        recipe.recipe_main()
    except SystemExit as end:  # torchtune ends the process with what the recipe returns
        if end.code:
            raise
if os.environ["RANK"] == "0":
    finish_tool.check_written(output, written)
    finish_tool.write_card(output)
run_tool.training.done()
