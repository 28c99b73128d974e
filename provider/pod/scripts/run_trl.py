import importlib, sys, types

sys.path.insert(0, __file__.rpartition("/")[0])
import finish_tool, run_tool
import transformers.trainer

job = run_tool.job()
script = importlib.import_module("trl.scripts." + job["method"])
config = run_tool.config(job["config"], "model_name_or_path", "dataset_name")
run_tool.check_models(config)
run_tool.check_datasets(job["method"], config)
if "rewards" in job:
    module = sys.modules["trainer_rewards"] = types.ModuleType("trainer_rewards")
    functions = run_tool.rewards(job["rewards"])
    vars(module).update(zip(job["rewards"], functions))
    config["reward_funcs"] = ["trainer_rewards." + name for name in job["rewards"]]
if "generation" in job:
    import run_generation

    config = {**config, **run_generation.connect(job["generation"], config)}
transformers.trainer.DEFAULT_CALLBACKS += run_tool.callbacks()
with finish_tool.result(job, config), run_tool.explained():
    script.main(*script.make_parser().parse_dict(config))
