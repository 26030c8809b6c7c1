#!/usr/bin/python3
"""A policy in Python: an example to start from. It reads the same file as the one
in ../file, which $HOLDFAST_POLICY_CONFIG names, and decides the same.

Copy this directory and change the four methods; plugin.py need not be changed.
It needs Python 3.9 or newer with grpcio, protobuf and cryptography.
"""

import datetime
import hashlib
import hmac
import json
import os
import sys

import plugin
import policy_pb2 as pb
from config import Store
from plugin import Refused, log


class FilePolicy:
    """Decides as the file says. ../../policy.go says what each question means."""

    def __init__(self, store):
        self.store = store

    def authenticate(self, q):
        """A token counts, and the uid only where there is none."""
        users, found = self.store.config().users, None
        if q.token:
            mine = hashlib.sha256(q.token.encode()).hexdigest()
            for user in users:  # all of them, so that how long it takes says nothing
                for sum in user["tokens_sha256"]:
                    if hmac.compare_digest(mine, sum.lower()):
                        found = user
        elif q.uid >= 0:
            found = next((user for user in users if user["uid"] == q.uid), None)
        if found is None:
            raise Refused("unauthorized", "this proxy does not know you")
        return pb.AuthenticateResponse(principal=pb.Principal(
            user=found["user"], workspace=found["workspace"], roles=found["roles"], all=found["all"],
        ))

    def resolve_task(self, q):
        task = next((task for task in self.store.config().tasks if task["id"] == q.task_id), None)
        if task is None:  # "" is no task's id
            raise Refused("task_not_found", "there is no such task")
        # The session is given the workspace of the request, so that has to be
        # right also for whoever sees all.
        of = task["workspace"]
        if of != q.workspace_id or not q.principal.all and of != q.principal.workspace:
            raise Refused("workspace_mismatch", "the task is of another workspace")
        return pb.ResolveTaskResponse(
            work_dir=task["work_dir"], argv=task["argv"], env=task["env"], labels=task["labels"],
            issue_id=task["issue_id"], prior_agent_session_id=task["prior_agent_session_id"],
        )

    def authorize(self, q):
        rules = self.store.config().rules
        if not any(q.verb in rules.get(role, ()) for role in q.principal.roles):
            raise Refused("permission_denied", "none of your roles may do this")
        return pb.AuthorizeResponse()

    def observe(self, q):
        """What cannot be written is no reason to let nobody in any more, so it is
        only logged."""
        path = self.store.config().audit
        try:
            if path:
                audit(path, q)
        except (OSError, OverflowError) as error:
            log("error", "an event is not in the audit", kind=q.kind, error=str(error))
        return pb.ObserveResponse()


def audit(path, q):
    """Appends an event as a line of JSON, written at once so that none is within
    another."""
    at = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=q.at_unix_ms)
    line = {
        "at": at.isoformat(timespec="milliseconds") + "Z", "kind": q.kind,
        "user": q.principal.user, "workspace": q.principal.workspace,
        "session_id": q.session_id, "labels": dict(q.labels), "verb": q.verb, "code": q.code,
    }
    line = {name: value for name, value in line.items() if value}
    if q.kind == "exited":
        line["exit_code"] = q.exit_code
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def main():
    path = os.environ.get("HOLDFAST_POLICY_CONFIG")
    if not path:
        sys.exit("HOLDFAST_POLICY_CONFIG does not name the policy's file")
    try:
        store = Store(path, log)
    except (OSError, ValueError) as error:
        log("error", "no policy", error=str(error))
        sys.exit(1)
    plugin.serve(FilePolicy(store))


if __name__ == "__main__":
    main()
