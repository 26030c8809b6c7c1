// Drives "proxy mcp" with the client of the Model Context Protocol's own SDK for JavaScript. Its argument is the program
// proxy, whose directory is in the environment.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [program] = process.argv.slice(2);
const proxy = (...args) => execFileSync(program, args, { encoding: 'utf8' });

async function agent(...args) {
  const client = new Client({ name: 'agent', version: '1' });
  await client.connect(new StdioClientTransport({ command: program, args: ['mcp', ...args], env: process.env }));
  const call = async (name, input) => {
    const { content, isError } = await client.callTool({ name, arguments: input }, undefined, { timeout: 120_000 });
    assert.deepEqual(content.map((part) => part.type), ['text']);
    return { text: content[0].text, isError: isError === true };
  };
  return {
    client,
    tools: async () => (await client.listTools()).tools.map((tool) => tool.name).sort(),
    says: async (name, input) => {
      const { text, isError } = await call(name, input);
      assert.equal(isError, false, text);
      return text;
    },
    fails: async (name, input, code) => {
      const { text, isError } = await call(name, input);
      assert.equal(isError, true, text);
      assert.match(text, new RegExp(`^${code}: `));
    },
  };
}

const a = await agent();
assert.deepEqual(await a.tools(), ['end', 'history', 'list', 'read', 'run', 'screen', 'send', 'wait']);

// A command that ends, and its exit code.
assert.equal(await a.says('run', { command: 'echo out; exit 3', session: 'one' }), 'ended with code 3\nout');
assert.match(proxy('ls'), /^one /m); // a person sees it, too

// The output of a command that fills more than a screen. The answer names the session if there is more to read.
const long = await a.says('run', { command: 'seq 100' });
const [, id, before] = long.match(/^(\S+): ended with code 0\nearlier lines are left out; read them: history with before (\d+)\n/);
assert.ok(long.endsWith('\n99\n100'));
assert.match(await a.says('history', { session: id, before: Number(before) }), /^1\n2\n/);
assert.equal(await a.says('run', { command: 'seq 100', max_bytes: 4096 }), `ended with code 0\n${Array.from({ length: 100 }, (_, i) => i + 1).join('\n')}`);
assert.match(await a.says('run', { command: 'seq 1000', max_bytes: 300 }), /^\S+: ended .*\nearlier lines are left out; .*\n[\d\n]{100,300}\n1000$/);
assert.equal(await a.says('run', { command: 'printf "a\n\nb\n\n\n\nc\n"' }), 'ended with code 0\na\n\nb\n\n\nc');

// A shell that reports its commands.
assert.match(await a.says('run', { session: 'shell' }), /^the shell waits for its first command/);
assert.match(await a.says('send', { session: 'shell', text: 'false', enter: true }), /^the command ended with code 1, the shell waits/);
const many = await a.says('send', { session: 'shell', text: 'seq 1000', enter: true, max_bytes: 300 });
assert.match(many, /are left out; read them: history with before \d+/);
assert.match(many, /\n1000$/);
assert.ok(many.length < 900, `${many.length} characters`);
assert.match(await a.says('history', { session: 'shell', command: -2 }), /^command 1: "false" ended with code 1/);
assert.equal(await a.says('read', { session: 'shell' }), '"seq 1000" ended with code 0, the shell waits'); // the state, and nothing new
assert.equal(await a.says('send', { session: 'shell', text: 'echo typed', enter: true }), 'the command ended with code 0, the shell waits\ntyped'); // neither the echo nor the prompt again

// A question, which no program reports: the answer says what can be seen.
const asks = { command: 'printf "Name: "; read name; echo "Hello $name"; sleep 1000', session: 'asks', timeout_s: 0.1 };
assert.match(await a.says('run', asks), /^(running|needs input)/);
assert.match(await a.says('wait', { session: 'asks', text: 'Name:' }), /Name:/);
assert.match(await a.says('screen', { session: 'asks' }), /^needs input: it reads the terminal, cursor behind "Name:"/);
assert.match(await a.says('send', { session: 'asks', text: 'Eve', enter: true, wait_text: 'Hello \\w+' }), /^Hello Eve$/m);

// The states of real programs, each with its evidence. An answer says "may" unless the system has reported the state.
const states = {
  read: { command: 'bash -c \'read -p "Go on? [y/N] " x\'', text: 'y/N', state: /^needs input: it reads the terminal, cursor behind "Go on\? \[y\/N\]"/ },
  password: { command: 'printf "Password: "; stty -echo; read x', text: 'Password', state: /needs input that the terminal hides, as a password/ },
  nested: { command: 'sh -c \'cat; true\'; true', text: '^$', state: /^needs input: / },
  bash: { command: 'PS1="plain $ " bash --norc -i', text: 'plain', state: /may need input, cursor behind "plain \$"/ },
  python: { command: 'python3 -q', text: '>>>', state: /may need input, cursor behind ">>>"/ },
  vim: { command: 'vim -u NONE -N', text: '~', state: /may need input: it fills the screen and gets each key/ },
  less: { command: 'seq 500 | less', text: '^:', state: /needs input|it fills the screen and gets each key/ },
  sleep: { command: 'echo begun; sleep 1000', text: 'begun', idle: 2500, state: /^running( "\w+")?, silent for \ds; may be idle or compute/ },
  spinner: { command: 'while :; do for c in a b c d; do printf "\\r%s working" $c; sleep 0.05; done; done', text: 'working', state: /^running( "\w+")?\n/ },
  bell: { command: 'printf "\\a\\abuilt"; sleep 1000', text: 'built', state: /; it has rung the bell 2 times$/m },
};
const first = {};
for (const [session, { command, text, idle }] of Object.entries(states)) {
  const begun = await a.says('run', { session, command, timeout_s: 0.01 });
  first[session] = begun + (await a.says('wait', { session, text }));
  if (idle) await a.says('wait', { session, idle_ms: idle });
}
for (const [session, { state }] of Object.entries(states)) {
  let says = session === 'bell' ? first.bell : ''; // an answer tells of a bell once
  const until = Date.now() + 10_000; // the program shows its prompt, and then begins to read
  while (!state.test(says) && Date.now() < until) says = await a.says('screen', { session });
  assert.match(says, state);
}

// The proxy is replaced, and killed, while the agent is connected.
proxy('handoff');
assert.match(await a.says('list', {}), /^asks: /m);
process.kill(JSON.parse(proxy('status', '--json')).proxy.pid, 'SIGKILL');
assert.match(await a.says('screen', { session: 'asks' }), /Hello Eve/);
assert.equal((await a.client.readResource({ uri: 'holdfast://screen/asks' })).contents[0].text.includes('Hello Eve'), true);
await assert.rejects(a.client.readResource({ uri: 'holdfast://screen/none' }), /not found/i);

// An agent controls only sessions of agents, unless the user permits more or less.
proxy('new', '--detach', '--id', 'mine', '--', 'cat');
await a.fails('send', { session: 'mine', text: 'x' }, 'permission_denied');
await a.fails('end', { session: 'mine' }, 'permission_denied');
await a.fails('send', { session: 'none', text: 'x' }, 'session_not_found');
await a.fails('send', { session: 'asks' }, 'invalid_argument');
await a.fails('wait', { session: 'asks', timeout_s: 1e9 }, 'invalid_argument');
assert.match(await a.says('end', { session: 'asks' }), /^ended by SIGHUP/);
await a.client.close();

const reader = await agent('--control', 'none');
assert.deepEqual(await reader.tools(), ['history', 'list', 'read', 'screen', 'wait']);
await reader.client.close();

const trusted = await agent('--control', 'all');
assert.match(await trusted.says('send', { session: 'mine', text: 'typed', enter: true, wait_text: 'typed' }), /^typed$/m);
await trusted.client.close();
assert.match(proxy('ls'), /mine/); // what the agent has not ended continues
