import hashlib, json, os, sys

here, output = os.path.dirname(__file__), os.environ["OUTPUT_DIR"]
files = json.load(open(here + "/files.json"))
for path, sha256 in files.items():
    with open(os.path.join(here, "data", path), "rb") as file:
        data = file.read()
    if hashlib.sha256(data).hexdigest() != sha256:
        sys.exit("pulumi-trainer: " + path + " is not what was sent")
    place = os.path.join(output, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place + ".part", "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(place + ".part", place)
print(json.dumps({"trainerStatus": {"progressPercentage": 100}}), flush=True)
