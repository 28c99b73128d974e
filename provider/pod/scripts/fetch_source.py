from s3 import Bucket, Failed


def fetch(address, place, limit):
    bucket, _, key = address[len("s3://") :].partition("/")
    try:
        data = Bucket(bucket).read(key, limit)
    except Failed as error:
        raise SystemExit(f"pulumi-trainer: the project cannot be fetched from {address}: {error}") from None
    with open(place, "wb") as file:
        file.write(data)
