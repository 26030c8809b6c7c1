"""Reads the file that says who may do what: ../file/policy.example.json is one.

A file with a mistake in it is never used, not even in part. At the start it ends
the program, and later the last good one stays.
"""

import json
import os
import re
import threading

VERBS = ("spawn", "list", "read", "type", "terminate")

MAX_NAME_BYTES = 256
MAX_ROLES = 64
MAX_ARGS = 4096
MAX_TASK_BYTES = 512 << 10  # argv, environment and work_dir
MAX_DIR_BYTES = 4 << 10
MAX_LABELS = 64
MAX_LABEL_BYTES = 16 << 10

# The fields and what they are when they are absent. A list is one of strings,
# an object one of strings by name.
TOP = {"users": [], "tasks": [], "rules": {}, "audit": ""}
USER = {"user": "", "uid": None, "tokens_sha256": [], "workspace": "", "roles": [], "all": False}
TASK = {
    "id": "", "workspace": "", "work_dir": "", "argv": [], "env": [], "labels": {},
    "issue_id": "", "prior_agent_session_id": "",
}


class Mistakes(ValueError):
    """All that is wrong with a file."""

    def __init__(self, found):
        super().__init__("\n".join(found))


class Config:
    """users and tasks are lists of dictionaries, rules are the verbs of each
    role, audit is a path or ""."""

    def __init__(self, text):
        self.mistakes = []
        try:
            top = json.loads(text)
        except ValueError as error:
            raise Mistakes([f"it is not JSON: {error}"]) from None
        if not isinstance(top, dict) or any(type(top.get(n, v)) is not type(v) for n, v in TOP.items()):
            raise Mistakes(["the file is not an object with lists as users and tasks, an object as rules, a string as audit"])
        self.unknown("the file", top, TOP)
        top = {**TOP, **top}
        self.rules = top["rules"]
        self.audit = top["audit"]
        self.users = [self.entry(f"users[{i}]", u, USER) for i, u in enumerate(top["users"])]
        self.tasks = [self.entry(f"tasks[{i}]", t, TASK) for i, t in enumerate(top["tasks"])]
        self.check_rules()
        self.check_users()
        self.check_tasks()
        if self.mistakes:
            raise Mistakes(self.mistakes)

    def wrong(self, where, what):
        self.mistakes.append(f"{where}: {what}")

    def unknown(self, where, value, known):
        for name in value.keys() - known.keys():
            self.wrong(where, f"unknown field {name!r}")

    def entry(self, where, value, known):
        """Returns a user or a task with all its fields, or None if it is of another
        shape and cannot be looked into."""
        if not isinstance(value, dict):
            return self.wrong(where, "not an object")
        self.unknown(where, value, known)
        entry = {**known, **value}
        bad = [name for name, absent in known.items() if not same_kind(entry[name], absent)]
        for name in bad:
            self.wrong(where, f"{name} is of another kind")
        return None if bad else entry

    def check_rules(self):
        if self.audit and not os.path.isabs(self.audit):
            self.wrong("audit", f"{self.audit!r} is not absolute")
        for role, verbs in self.rules.items():
            if not same_kind(verbs, []):
                self.wrong(f"rules[{role!r}]", "not a list of verbs")
                continue
            for verb in verbs:
                if verb not in VERBS:
                    self.wrong(f"rules[{role!r}]", f"{verb!r} is no verb, they are {', '.join(VERBS)}")

    def check_users(self):
        uids, tokens = set(), set()
        for i, user in enumerate(self.users):
            where = f"users[{i}]"
            if user is None:
                continue
            if not user["user"]:
                self.wrong(where, "user is empty")
            if any(size(user[name]) > MAX_NAME_BYTES for name in ("user", "workspace")):
                self.wrong(where, f"user or workspace: more than {MAX_NAME_BYTES} bytes")
            if len(user["roles"]) > MAX_ROLES or any(size(r) > MAX_NAME_BYTES for r in user["roles"]):
                self.wrong(where, f"roles: more than {MAX_ROLES}, or of more than {MAX_NAME_BYTES} bytes")
            if user["uid"] is None and not user["tokens_sha256"]:
                self.wrong(where, "neither uid nor tokens_sha256, so nobody can be it")
            if user["uid"] is not None and (user["uid"] < 0 or user["uid"] in uids):
                self.wrong(where, f"uid {user['uid']} is negative, or another's")
            uids.add(user["uid"])
            for k, token in enumerate(user["tokens_sha256"]):
                # The text may be the token itself: keep it out of logs.
                if not re.fullmatch("[0-9a-fA-F]{64}", token):
                    self.wrong(where, f"tokens_sha256[{k}] is not 64 hex digits")
                elif token.lower() in tokens:
                    self.wrong(where, f"tokens_sha256[{k}] is there twice")
                tokens.add(token.lower())
            for role in user["roles"]:
                if role not in self.rules:
                    self.wrong(where, f"there is no rule for the role {role!r}")

    def check_tasks(self):
        ids = set()
        for i, task in enumerate(self.tasks):
            where = f"tasks[{i}]"
            if task is None:
                continue
            if not task["id"] or task["id"] in ids:
                self.wrong(where, f"the id {task['id']!r} is empty, or another's")
            ids.add(task["id"])
            directory, argv, env, labels = task["work_dir"], task["argv"], task["env"], task["labels"]
            if not directory.startswith("/") or size(directory) > MAX_DIR_BYTES or "\0" in directory:
                self.wrong(where, f"work_dir is not absolute, or more than {MAX_DIR_BYTES} bytes, or has a NUL byte")
            if len(argv) > MAX_ARGS or "\0" in "".join(argv) or argv[:1] == [""]:
                self.wrong(where, f"argv has more than {MAX_ARGS} entries, a NUL byte, or an empty program")
            if len(env) > MAX_ARGS or any(e.find("=") <= 0 or "\0" in e for e in env):
                self.wrong(where, f"env has more than {MAX_ARGS} entries, or one is not K=V")
            if size(directory) + sum(size(s) + 1 for s in argv + env) > MAX_TASK_BYTES:
                self.wrong(where, f"argv, env and work_dir: more than {MAX_TASK_BYTES} bytes")
            bytes_of_labels = sum(size(k) + size(v) for k, v in labels.items())
            if len(labels) > MAX_LABELS or bytes_of_labels > MAX_LABEL_BYTES or "" in labels:
                self.wrong(where, f"labels: more than {MAX_LABELS} or {MAX_LABEL_BYTES} bytes, or an empty key")
            for name in ("issue_id", "prior_agent_session_id"):
                if size(task[name]) > MAX_NAME_BYTES or "\0" in task[name]:
                    self.wrong(where, f"{name}: more than {MAX_NAME_BYTES} bytes, or a NUL byte")


class Store:
    """Has the config of a file, and reads it again when it has changed. Put a new
    one in its place by renaming: what is half written is a mistake."""

    def __init__(self, path, log):
        self.path, self.log = path, log
        self.lock = threading.Lock()
        self.read, self.current = self.look(), None
        self.current = self.load()

    def config(self):
        """Returns the last good config; complains once about what it finds."""
        with self.lock:
            now = self.look()
            if now == self.read:
                return self.current
            self.read = now  # before it is read: what is written meanwhile is seen the next time
            try:
                self.current = self.load()
                self.log("info", "the policy's file is read again", users=len(self.current.users))
            except (OSError, ValueError) as error:
                self.log("error", "the policy's file cannot be used, the last good one stays", error=str(error))
            return self.current

    def look(self):
        try:
            s = os.stat(self.path)
        except OSError:
            return None
        return s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns

    def load(self):
        with open(self.path, encoding="utf-8") as f:
            return Config(f.read())


def same_kind(value, absent):
    """Whether a value is of the kind of what stands for it when it is absent."""
    if absent is None:
        return value is None or type(value) is int
    if type(value) is not type(absent):
        return False
    if isinstance(value, list):
        return all(is_text(s) for s in value)
    if isinstance(value, dict):
        return all(is_text(s) for pair in value.items() for s in pair)
    return not isinstance(value, str) or is_text(value)


def is_text(s):
    """Strings of JSON may be halves of characters, which gRPC does not carry."""
    return isinstance(s, str) and not re.search("[\ud800-\udfff]", s)


def size(s):
    return len(s.encode())
