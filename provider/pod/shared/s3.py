import datetime, hashlib, hmac, http.client, json, os, re, time, urllib.error, urllib.parse, urllib.request
from xml.etree import ElementTree

CHUNK = 1 << 20
PART = 64 << 20
MOST_PARTS = 10_000
MOST_ANSWER = 8 << 20
ATTEMPTS = 4
DELAY = 0.5
TIMEOUT = 60
RENEW = 300
UNSIGNED = "UNSIGNED-PAYLOAD"
BUSY = {"RequestTimeout", "SlowDown", "Throttling", "InternalError"}
EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired"}
AGENTS = {"localhost", "127.0.0.1", "::1", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"}


class Failed(Exception):
    def __init__(self, why, again=False, status=0, code=""):
        super().__init__(why)
        self.again, self.status, self.code, self.region = again, status, code, ""


class DiskFailed(Exception):
    pass


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_, **__):
        return None


def sign_headers(method, url, region, key, secret, token, payload=UNSIGNED):
    parts = urllib.parse.urlsplit(url)
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-content-sha256": payload, "x-amz-date": now}
    if token:
        headers["x-amz-security-token"] = token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    query = "&".join(sorted(filter(None, parts.query.split("&"))))
    request = "\n".join([method, parts.path, query, lines, names, payload])
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(request.encode()).hexdigest()])
    found = ("AWS4" + secret).encode()
    for word in (*scope.split("/"), text):
        found = hmac.new(found, word.encode(), hashlib.sha256).digest()
    del headers["host"]
    who = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={found.hex()}"
    return {**headers, "Authorization": who}


def read_xml(data):
    def walk(element, above):
        path = above + element.tag.rpartition("}")[2]
        for each in element:
            yield from walk(each, f"{path}/")
        yield path, element.text or ""

    try:
        return [*walk(ElementTree.fromstring(data), "")]  # noqa: S314  # the bucket is trusted
    except ElementTree.ParseError as error:
        raise Failed(f"the answer is not valid XML: {error}") from None


def words(text):
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]


def read_all(answer, limit=MOST_ANSWER):
    data = answer.read(limit + 1)
    if len(data) > limit:
        raise Failed(f"the answer has more than {limit} bytes", status=416)
    if answer.length:
        raise OSError(f"the answer ended {answer.length} bytes early")
    return data


def send(request, handle, proxies=None, timeout=None):
    opener = urllib.request.build_opener(
        NoRedirect, *([] if proxies is None else [urllib.request.ProxyHandler(proxies)])
    )
    try:
        with opener.open(request, timeout=timeout or TIMEOUT) as answer:
            return handle(answer)
    except urllib.error.HTTPError as error:
        text = error.read(4000).decode(errors="replace")
        named, message = (re.search(rf"<{name}>([^<]*)</{name}>", text) for name in ("Code", "Message"))
        code = words(named[1]) if named else ""
        why = words(f"{error.code} {code or error.reason}: {message[1] if message else text}").rstrip(": ")
        failed = Failed(why, error.code >= 500 or error.code in (408, 429) or code in BUSY, error.code, code)
        failed.region = error.headers.get("x-amz-bucket-region", "")
        raise failed from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        host = urllib.parse.urlsplit(request.full_url).netloc
        raise Failed(words(f"{host}: {reason}") or type(reason).__name__, True) from None


class Slice:
    def __init__(self, file, start, size):
        self.file, self.start, self.size = file, start, size

    def __iter__(self):
        self.file.seek(self.start)
        left = self.size
        while left:
            data = self.file.read(min(CHUNK, left))
            if not data:
                raise OSError("the file has become shorter")
            left -= len(data)
            yield data


class Bucket:
    def __init__(self, name, env=os.environ, tries=None, timeout=None):
        self.name, self.env, self.tries, self.timeout = name, env, tries, timeout
        self.region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or "us-east-1"
        self.given = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
        self.keys, self.expires = None, 0.0

    def endpoint(self, service):
        given = (
            self.given if service == "s3" else self.env.get("AWS_ENDPOINT_URL_STS") or self.env.get("AWS_ENDPOINT_URL")
        )
        china = ".cn" if self.region.startswith("cn-") else ""
        found = (given or f"https://{service}.{self.region}.amazonaws.com{china}").rstrip("/")
        if not found.startswith(("http://", "https://")):
            raise Failed(f"the endpoint {words(found)!r} does not begin with https:// or http://")
        if "@" in found:
            raise Failed("the endpoint has a user or a password in it; the keys of AWS_ACCESS_KEY_ID are used instead")
        return found

    def credentials(self):
        env = self.env.get
        key, secret = env("AWS_ACCESS_KEY_ID"), env("AWS_SECRET_ACCESS_KEY")
        if key and secret:
            return key.strip(), secret.strip(), (env("AWS_SESSION_TOKEN") or "").strip()
        source = None
        if env("AWS_WEB_IDENTITY_TOKEN_FILE") and env("AWS_ROLE_ARN"):
            source = self.assume_role
        elif env("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
            source = self.ask_agent
        if source and self.expires - time.time() < RENEW:
            try:
                self.keys, self.expires = source()
            except Failed as error:
                if self.keys is None or self.expires < time.time():
                    raise Failed(f"no credentials: {error}", error.again, error.status) from None
        return self.keys

    def assume_role(self):
        fields = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": self.env["AWS_ROLE_ARN"],
            "RoleSessionName": self.env.get("AWS_ROLE_SESSION_NAME") or "pulumi-trainer",
            "WebIdentityToken": read_token(self.env["AWS_WEB_IDENTITY_TOKEN_FILE"]),
        }
        url = self.endpoint("sts") + "/"
        request = urllib.request.Request(url, urllib.parse.urlencode(fields).encode(), {"Accept": "application/xml"})
        found = {path.rpartition("/")[2]: text for path, text in read_xml(send(request, read_all))}
        return credentials_of(found, "SessionToken")

    def ask_agent(self):
        url = self.env["AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        parts = urllib.parse.urlsplit(url)
        if parts.scheme != "https" and (parts.scheme != "http" or parts.hostname not in AGENTS):
            raise Failed(f"AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https:// nor on this node: {words(url)}")
        file = self.env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
        token = read_token(file) if file else self.env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        headers = {"Authorization": token} if token else {}
        try:
            found = json.loads(send(urllib.request.Request(url, headers=headers), read_all, {}))
        except ValueError:
            raise Failed("the agent's answer is not valid JSON") from None
        return credentials_of(found if isinstance(found, dict) else {}, "Token")

    def call(
        self,
        method,
        key="",
        query=None,
        body: object = b"",
        size=None,
        payload="",
        headers=None,
        handle=read_all,
        tries=None,
    ):
        attempt, last = 0, (tries or self.tries or ATTEMPTS) - 1
        while True:
            try:
                return self.send_request(method, key, query or {}, body, size, payload, headers or {}, handle)
            except Failed as error:
                if attempt == last or not self.is_retried(error):
                    raise
            time.sleep(DELAY * 2**attempt)
            attempt += 1

    def is_retried(self, error):
        if error.code in EXPIRED and self.keys:
            self.expires = 0.0
            return True
        if error.region not in ("", self.region) and not self.given:
            self.region = error.region
            return True
        return error.again

    def send_request(self, method, key, query, body, size, payload, headers, handle):
        """Send a signed request once and return what `handle` makes of the answer; an error does not show the credentials."""
        url = f"{self.endpoint('s3')}/{self.name}" + ("/" + urllib.parse.quote(key) if key else "")
        if query:
            url += "?" + urllib.parse.urlencode(query, quote_via=urllib.parse.quote, safe="")
        if isinstance(body, bytes):
            size, payload = len(body), hashlib.sha256(body).hexdigest()
        keys, found = self.credentials(), {**headers}
        if keys:
            key_id, secret, token = keys
            found |= sign_headers(method, url, self.region, key_id, secret, token, payload or UNSIGNED)
        if method in ("PUT", "POST"):
            found |= {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        data = body if method in ("PUT", "POST") else None
        try:
            return send(urllib.request.Request(url, data, found, method=method), handle, timeout=self.timeout)
        except Failed as error:
            text = str(error)
            for secret in map(str, (keys or ())[1:]):
                text = text.replace(secret, "...") if len(secret) > 3 else text
            error.args = (text,)
            raise

    def list(self, prefix, delimiter=""):
        found, token = [], ""
        while True:
            query = {"list-type": "2", "prefix": prefix, "delimiter": delimiter, "continuation-token": token}
            page = read_xml(self.call("GET", query={name: value for name, value in query.items() if value}))
            found += [text for path, text in page if path.endswith(("/Contents/Key", "/CommonPrefixes/Prefix"))]
            fields = dict(page)
            token = fields.get("ListBucketResult/NextContinuationToken", "")
            if fields.get("ListBucketResult/IsTruncated") != "true" or not token:
                return found

    def read(self, key, limit=MOST_ANSWER):
        return self.call("GET", key, handle=lambda answer: read_all(answer, limit))

    def download(self, key, size, file):
        digest = hashlib.sha256()
        for start in range(0, size, PART):
            stop = min(size, start + PART)

            def handle(answer, start=start, stop=stop, digest=digest):
                if answer.status != 206 and (start, stop) != (0, size):
                    raise Failed("the server ignores ranges")
                part = digest.copy()
                file.seek(start)
                left = stop - start
                while data := answer.read(min(CHUNK, left + 1)):
                    left -= len(data)
                    if left < 0:
                        raise Failed("it has more bytes than its manifest lists", status=416)
                    part.update(data)
                    try:
                        file.write(data)
                        file.flush()
                    except OSError as error:
                        raise DiskFailed(error.strerror) from None
                if answer.length:
                    raise OSError(f"it ended {answer.length} bytes early")
                if left:
                    raise Failed("it has fewer bytes than its manifest lists", status=416)
                return part

            digest = self.call("GET", key, headers={"Range": f"bytes={start}-{stop - 1}"}, handle=handle)
        return digest.hexdigest()

    def write(self, key, data):
        self.call("PUT", key, body=data)

    def upload(self, key, path):
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256()
            for data in Slice(file, 0, size):
                digest.update(data)
            sha256 = digest.hexdigest()
            if size > PART:
                self.upload_parts(key, file, size)
            elif size:
                self.call("PUT", key, body=Slice(file, 0, size), size=size, payload=sha256)
            else:
                self.write(key, b"")
        return {"size": size, "sha256": sha256}

    def upload_parts(self, key, file, size):
        begun = dict(read_xml(self.call("POST", key, {"uploads": ""})))
        upload = begun.get("InitiateMultipartUploadResult/UploadId", "")
        if not upload:
            raise Failed("the server has not begun a multipart upload")
        part, lines = max(PART, -(-size // MOST_PARTS)), []
        try:
            for number, start in enumerate(range(0, size, part), 1):
                left = min(part, size - start)
                query = {"partNumber": str(number), "uploadId": upload}
                tag = self.call(
                    "PUT", key, query, Slice(file, start, left), left, handle=lambda each: each.headers["ETag"]
                )
                if not re.fullmatch(r'"?[\w-]+"?', tag or ""):
                    raise Failed("the server has not named the ETag of a part")
                lines.append(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
            text = f"<CompleteMultipartUpload>{''.join(lines)}</CompleteMultipartUpload>"
            ended = dict(read_xml(self.call("POST", key, {"uploadId": upload}, text.encode())))
            if "CompleteMultipartUploadResult" not in ended:
                raise Failed(words(f"{ended.get('Error/Code')}: {ended.get('Error/Message')}"), True)
        except BaseException:
            try:
                self.call("DELETE", key, {"uploadId": upload}, tries=1)
            except Failed:
                pass
            raise

    def delete(self, key):
        self.call("DELETE", key)


def read_token(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(1 << 16).strip()
    except (OSError, ValueError) as error:
        raise Failed(f"{path} cannot be read: {getattr(error, 'strerror', error)}") from None


def credentials_of(found, token):
    names = ("AccessKeyId", "SecretAccessKey", token, "Expiration")
    values = [*map(found.get, names)]
    if not all(isinstance(value, str) and value.isascii() and value.isprintable() for value in values):
        raise Failed("the answer has no credentials")
    try:
        end = datetime.datetime.strptime(values[3][:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        raise Failed("the credentials have no valid time of expiry") from None
    return tuple(values[:3]), end.timestamp()
