import json, os, re

BEGIN, END = "<!-- pulumi-trainer: begin -->", "<!-- pulumi-trainer: end -->"
HUB = re.compile(r"(?:hf://)?([\w.-]+/[\w.-]+)(?:@[\w./-]+)?")


def hub_name(value):
    found = HUB.fullmatch(value) if isinstance(value, str) and value[:1] not in "./" else None
    return found[1] if found and not os.path.isdir(value) else ""


def section(facts):
    rows = "".join(f"| {name} | {cell(value)} |\n" for name, value in facts["rows"].items() if value)
    fields = json.dumps(facts["fields"], indent=2, ensure_ascii=False)
    text = f"## Training job\n\n| | |\n| --- | --- |\n{rows}"
    if facts["fields"]:
        text += f"\nFields of {facts['title']} that the job sets:\n\n```json\n{fields}\n```\n"
    return f"{BEGIN}\n\n{text}\n{END}\n"


def cell(value):
    return " ".join(str(value).replace("|", "\\|").split())


def lora_text(about):
    modules = about.get("target_modules") or []
    named = modules if isinstance(modules, str) else ", ".join(sorted(modules))
    kind = "DoRA, " if about.get("use_dora") else ""
    return (
        f"{kind}rank {about.get('r')}, alpha {about.get('lora_alpha')}, dropout {about.get('lora_dropout')}, on {named}"
    )


def metadata(theirs, facts, library):
    data = dict(theirs)
    for name, own in (("base_model", facts["model"]), ("datasets", facts["dataset"])):
        former = data.pop(name, None)
        names = former if isinstance(former, list) else [former]
        names = [hub_name(own)] if own else names
        kept = [*filter(hub_name, names)]
        if kept:
            data[name] = kept if name == "datasets" or len(kept) > 1 else kept[0]
    data["library_name"] = library
    tags = data["tags"] if isinstance(data.get("tags"), list) else []
    tags = [tag for tag in tags if not str(tag).startswith("base_model:")]
    data["tags"] = list(dict.fromkeys([*tags, *facts["tags"]]))
    return data


def write(folder, facts, library):
    from huggingface_hub import ModelCard, ModelCardData

    path = f"{folder}/README.md"
    card = ModelCard.load(path) if os.path.exists(path) else None
    data = metadata(card.data.to_dict() if card else {}, facts, library)
    text = (
        re.sub(rf"\s*{BEGIN}.*{END}\s*", "\n", card.text, flags=re.S).strip() if card else f"# {facts['rows']['Job']}"
    )
    made = f"---\n{ModelCardData(**data)}\n---\n\n{text}\n\n{section(facts)}"
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(made)
    os.replace(f"{path}.new", path)
