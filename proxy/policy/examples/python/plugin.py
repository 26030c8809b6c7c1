"""Serves a policy to the proxy that started this program.

The proxy starts it with hashicorp/go-plugin, whose protocol this is, in full:

- The environment has a cookie, so that nobody starts a policy by mistake, the
  versions of the questions that the proxy speaks, a directory for the socket,
  and the certificate that the proxy will show.
- The program prints one line: where it listens, and its own certificate. Each
  side trusts the other's certificate and no other.
- There it serves gRPC: the policy, a health check, and Shutdown.
- Lines of JSON on stderr go to the proxy's log. Nothing else goes to stdout.

A policy is an object with authenticate, resolve_task, authorize and observe.
They are called by several threads, with the messages of policy.proto, and return
one of those; or they raise Refused. What else they raise is taken for a policy
that does not work, which is a no.

The proxy's certificate has a key on the curve P-521. Wheels of grpcio know that
since 1.60; older packages of distributions, which use OpenSSL, do too.
"""

import base64
import datetime
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import traceback
from concurrent import futures

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import policy_pb2 as pb

VERSION = 1  # of the questions
MAX_MESSAGE_BYTES = 1 << 20
COOKIE = ("HOLDFAST_POLICY", "holdfast.policy")


class Refused(Exception):
    """A no. The code is unauthorized, permission_denied, task_not_found or
    workspace_mismatch; the message is for the client's user."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.answer = pb.Refusal(code=code, message=message)


def log(level, message, **fields):
    """Writes a line for the proxy's log: level is debug, info, warn or error."""
    now = datetime.datetime.now(datetime.timezone.utc)
    entry = {"@level": level, "@message": message, "@timestamp": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), **fields}
    sys.stderr.write(json.dumps(entry) + "\n")
    sys.stderr.flush()


def serve(policy):
    """Answers until the proxy asks for the end, or has ended itself."""
    parent = os.getppid()
    if os.environ.get(COOKIE[0]) != COOKIE[1]:
        sys.exit("This is a policy for Holdfast. The proxy starts it: proxy serve --policy PROGRAM")
    # Where no version is common, the proxy says so when it sees ours.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the proxy decides what ^C means
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers=8),
        handlers=services(policy, stop),
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ],
    )
    os.umask(0o077)  # the socket is this user's alone
    directory = tempfile.mkdtemp(prefix="policy", dir=os.environ.get("PLUGIN_UNIX_SOCKET_DIR"))
    try:
        path = os.path.join(directory, "s")
        certificate = listen(server, "unix:" + path)
        server.start()
        print(f"1|{VERSION}|unix|{path}|grpc|{certificate}", flush=True)
        # A proxy that was killed does not say goodbye.
        while not stop.wait(timeout=1):
            if os.getppid() != parent:
                break
        server.stop(grace=0.5).wait()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def listen(server, address):
    """Adds an address. Returns the certificate to print, "" without TLS."""
    theirs = os.environ.get("PLUGIN_CLIENT_CERT")
    if not theirs:
        server.add_insecure_port(address)
        return ""
    key, certificate = make_certificate()
    pem = serialization.Encoding.PEM
    credentials = grpc.ssl_server_credentials(
        [(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
            certificate.public_bytes(pem),
        )],
        root_certificates=theirs.encode(),
        require_client_auth=True,
    )
    server.add_secure_port(address, credentials)
    der = certificate.public_bytes(serialization.Encoding.DER)
    return base64.b64encode(der).decode().rstrip("=")  # Go reads it without padding


def make_certificate():
    """A certificate for this run, signed by itself: the proxy takes it for the
    authority, and for that of the host "localhost"."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + datetime.timedelta(days=30 * 365))  # a proxy may run for long
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key, certificate


def services(policy, stop):
    """What is served. GRPCBroker and GRPCStdio, which go-plugin has besides, are
    for plugins that call back and print; it does without them."""

    def question(ask, request, response):
        def answer(message, context):
            try:
                return ask(message)
            except Refused as no:
                return response(refusal=no.answer)
            except Exception as error:
                log("error", "the policy failed", question=ask.__name__, error=traceback.format_exc())
                return context.abort(grpc.StatusCode.UNKNOWN, f"the policy failed: {error!r}")

        return grpc.unary_unary_rpc_method_handler(answer, request.FromString, response.SerializeToString)

    def fixed(answer):  # bytes, whatever is asked
        return grpc.unary_unary_rpc_method_handler(lambda _message, _context: answer())

    def shutdown():
        stop.set()
        return b""

    return [
        grpc.method_handlers_generic_handler("holdfast.policy.v1.Policy", {
            "Authenticate": question(policy.authenticate, pb.AuthenticateRequest, pb.AuthenticateResponse),
            "ResolveTask": question(policy.resolve_task, pb.ResolveTaskRequest, pb.ResolveTaskResponse),
            "Authorize": question(policy.authorize, pb.AuthorizeRequest, pb.AuthorizeResponse),
            "Observe": question(policy.observe, pb.ObserveRequest, pb.ObserveResponse),
        }),
        grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": fixed(lambda: b"\x08\x01")}),  # SERVING
        grpc.method_handlers_generic_handler("plugin.GRPCController", {"Shutdown": fixed(shutdown)}),
    ]
