# The harness of the client of .github/docs/write-client.md, for the conformance suite.

import base64, json, os, select, sys

from client import Client, Refused


def emit(event, **fields):
    if "data" in fields:
        fields["data_b64"] = base64.b64encode(fields.pop("data")).decode()
    if event == "failed":
        fields.setdefault("of", "attachment")
    print(json.dumps({"event": event, **fields}), flush=True)


class Harness:
    client, attaching = None, False

    def command(self, do, **c):
        if do == "connect":
            self.client = Client(c["socket"], self.tell)
            try:
                self.client.attempts(self.client.connect)
                emit("connected")
            except Refused as e:
                emit("failed", of="connect", code=str(e))
        elif do == "spawn":
            try:
                session = self.client.spawn(c["session_id"], c["argv"])
                emit("spawned", session_id=session["id"], instance=session["instance"])
            except Refused as e:
                emit("failed", of="spawn", code=str(e))
        elif do == "attach":
            self.attaching = True
            self.client.attach(c["session_id"], c.get("instance"), c.get("offset", 0), c.get("writer"))
        elif do == "type":
            self.client.type(base64.b64decode(c["data_b64"]))
        elif do == "position":
            instance, offset, writer = self.client.position()
            emit("position", instance=instance, offset=offset, writer=writer)
        elif do == "close":
            if self.client:
                self.client.close()
            self.client = None
            emit("closed")

    def tell(self, event, **fields):
        self.attached()
        if event == "failed" and self.attaching:
            self.attaching, fields["of"] = False, "attach"
        emit(event, **fields)

    def attached(self):
        if self.attaching and self.client.sock and self.client.attached:
            self.attaching = False
            emit("attached")

    def step(self):
        if self.client and self.client.id is not None:
            self.client.step()
            if self.client:
                self.attached()

    def ready(self):  # whether a step has something to do at once
        c = self.client
        if not c or c.id is None:
            return False
        return c.sock is None or not c.attached or len(c.buffer) >= 4 and len(c.buffer) >= 4 + int.from_bytes(c.buffer[:4], "big")


emit("ready", lacks=["websocket", "info", "resize", "detach", "own_view"])
h, stdin = Harness(), b""
while True:
    sources = [0] + ([h.client.sock] if h.client and h.client.sock and h.client.id is not None else [])
    readable, _, _ = select.select(sources, [], [], 0 if h.ready() else None)
    if 0 in readable:
        part = os.read(0, 1 << 16)
        if not part:
            sys.exit(0)
        *lines, stdin = (stdin + part).split(b"\n")
        for line in lines:
            h.command(**json.loads(line))
    elif readable or h.ready():
        h.step()
