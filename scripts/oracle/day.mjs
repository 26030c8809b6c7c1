// Plays a working day of a coding agent three times, with real programs: with the tools of "proxy mcp", and by two agents
// that poll the screen of tmux. It counts the tokens of all that the model writes and reads, and prints them as JSON.
// Its arguments are the program proxy, whose directory is in the environment, and an empty directory. If the environment
// has DAY_TRANSCRIPT, it writes what each agent has written and read into that directory.
//
// Counted are the name and the arguments of each call, each answer, and once the descriptions of the tools. A model reads
// the whole conversation again at each call; that is not counted, which favours the agents that poll, because they call
// more often. The tokens are those of the encoding o200k_base. The absolute numbers are others for other models.
//
// The agent "tmux" looks at the screen one second after it has typed, and then each second until it sees the end. From the
// same screens the program computes "tmux5", which looks after one second and then each 5 seconds. The agent "thrifty" is
// as tmux5, and clears the screen before each command, so that it does not read earlier output again.
//
// All agents do the same tasks with the same command lines. The program fails if an agent has not read the facts of a task.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';
import { project } from './project.mjs';

const [program, root] = process.argv.slice(2);
const transcript = process.env.DAY_TRANSCRIPT; // a directory for all that was read and written

// Usage counts the tokens of the tasks of one agent.
class Usage {
  tasks = {}; // by name, in the order of the day
  log = '';

  begin(name) {
    this.task = this.tasks[name] ??= { tokens: 0, bytes: 0, calls: 0 };
    this.read = ''; // what the agent has read in this part of the task
    this.log += `\n======== ${name}\n`;
  }

  text(text) {
    this.task.tokens += countTokens(text);
    this.task.bytes += Buffer.byteLength(text);
  }

  call(name, input, answer) {
    const call = JSON.stringify({ name, arguments: input });
    this.task.calls++;
    this.text(call);
    this.text(answer);
    this.read += answer + '\n';
    this.log += `> ${call}\n${answer}\n`;
  }

  tools(tools, instructions) {
    this.begin('descriptions of the tools');
    this.text(JSON.stringify(tools));
    this.text(instructions);
  }
}

// Holdfast is an agent that uses the tools.
class Holdfast {
  usage = new Usage();
  usages = [this.usage];

  static async begin(cwd) {
    const agent = new Holdfast();
    agent.client = new Client({ name: 'day', version: '1' });
    await agent.client.connect(new StdioClientTransport({ command: program, args: ['mcp'], env: process.env, cwd }));
    const { tools } = await agent.client.listTools();
    agent.usage.tools(tools.map(({ name, description, inputSchema }) => ({ name, description, input_schema: inputSchema })), agent.client.getInstructions());
    return agent;
  }

  async call(name, input) {
    const { content } = await this.client.callTool({ name, arguments: input }, undefined, { timeout: 120_000 });
    assert.deepEqual(content.map((part) => part.type), ['text']);
    this.usage.call(name, input, content[0].text);
    return content[0].text;
  }

  command = (line) => this.call('run', { command: line });
  long = (line) => this.call('run', { command: line, timeout_s: 120 });
  open = (session, line) => this.call('run', { command: line, session, timeout_s: 1 });
  shell = (session) => this.call('run', { session });
  type = (session, text) => this.call('send', { session, text, enter: true });
  inShell = this.type;
  async finish(session, text) {
    await this.type(session, text);
    await this.call('wait', { session });
  }
  press = (session, text, keys = []) => this.call('send', keys.length ? { session, text, keys } : { session, text });
  async look(session) {
    await sleep(1000); // as the agents that poll; it is the time in which a model thinks
    return this.call('read', { session });
  }
  stop = (session) => this.call('end', { session });
  older() {} // the answers say so if they lack something
  end = () => this.client.close();
}

const quote = (text) => (/^[\w./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
const prompt = /dev@box:\S*[$#]$/;

// Tmux is an agent that has a tool which runs command lines, and looks at the screen of tmux with it. All commands and
// programs run in the shell of the window "work", except for those that continue, which have windows of their own.
class Tmux {
  eachSecond = new Usage();
  each5 = new Usage();
  usages = [this.eachSecond, this.each5];

  static async begin(cwd, { clears = false } = {}) {
    const agent = new Tmux();
    Object.assign(agent, { cwd, clears, env: { ...process.env, TMUX_TMPDIR: path.dirname(cwd), HOME: path.dirname(cwd) } });
    delete agent.env.TMUX;
    const bash = {
      name: 'bash', description: 'Run a command line with bash, and answer its output.',
      input_schema: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
    };
    const instructions = 'Use tmux for everything that needs a terminal.';
    for (const u of agent.usages) u.tools([bash], instructions);
    fs.writeFileSync(path.join(path.dirname(cwd), 'tmux.conf'), `set -g default-command "bash --rcfile ${path.dirname(cwd)}/bashrc"\nset -g history-limit 10000\n`);
    fs.writeFileSync(path.join(path.dirname(cwd), 'bashrc'), "PS1='dev@box:\\w\\$ '\n");
    agent.start('work', '');
    return agent;
  }

  // bash runs a command line, and returns its output. The answer lacks the blanks at its end, as those of most tools do.
  bash(command) {
    const answer = execFileSync('bash', ['-c', command], { encoding: 'utf8', env: this.env, cwd: this.cwd, stdio: ['ignore', 'pipe', 'pipe'] });
    return answer.trimEnd();
  }

  // call is a call of the tool that does not depend on when the agent looks at the screen.
  call(command, told = command) {
    const answer = this.bash(command);
    for (const u of this.usages) u.call('bash', { command: told }, answer);
  }

  // poll runs a command line that shows the screen, and looks again each second until it sees the end.
  async poll(session, before, sees) {
    const capture = `sleep 1; tmux capture-pane -p -t ${session}`;
    const screens = [];
    for (let first = true; first || !sees.test(screens.at(-1).answer); first = false) {
      assert.ok(screens.length < 60, `the screen does not show ${sees}:\n${screens.at(-1)?.answer}`);
      const command = first && before ? `${before}; ${capture}` : capture;
      screens.push({ command, answer: this.bash(command) });
    }
    screens.forEach(({ command, answer }, i) => {
      this.eachSecond.call('bash', { command }, answer);
      if (i % 5 === 0 || i === screens.length - 1) this.each5.call('bash', { command: i === 0 ? command : command.replace('sleep 1', 'sleep 5') }, answer);
    });
  }

  start(session, line) {
    const config = `-f ${path.join(path.dirname(this.cwd), 'tmux.conf')} `; // the agent does not need to name it
    const command = `tmux ${config}new-session -d -s ${session} -x 120 -y 40${line && ` ${quote(line)}`}`;
    this.call(command, command.replace(config, ''));
  }

  keys = (session, text, sees) => this.poll(session, `tmux send-keys -t ${session} ${text}`, sees);
  line = (session, line, sees) => this.keys(session, `${quote(line)} Enter`, sees);

  inWork = (line, sees) => this.line('work', (this.clears ? 'clear; ' : '') + line, sees);
  command = (line, { code = false } = {}) => this.inWork(line + (code ? '; echo "exit $?"' : ''), prompt);
  long = this.command;
  async open(session, line, sees, { stays = false } = {}) {
    if (!stays) return this.inWork(line, sees);
    this.start(session, line);
    return this.poll(session, '', sees);
  }
  shell = async () => {}; // it has one
  inShell = (session, line) => this.inWork(line, prompt);
  window = (session) => (session === 'dev' ? 'dev' : 'work');
  type = (session, text, sees = prompt) => this.line(this.window(session), text, sees);
  finish = this.type;
  press = (session, text, keys = [], sees = prompt) => this.keys(this.window(session), [quote(text), ...keys].join(' '), sees);
  look = (session) => this.poll(this.window(session), '', /^/);
  stop = (session) => this.call(`tmux kill-session -t ${session}`);
  older = () => this.call('tmux capture-pane -p -t work -S -200'); // the screen lacks a fact
  end() {
    this.bash('tmux kill-server');
  }
}

// day returns the tasks in their order: name, facts, and the steps.
function day(a, port, visit) {
  const url = `http://127.0.0.1:${port}`;
  return [
    ['look around', [/server\.log/, /src\/writer\.c/, /parser\.c:\d+:int parser_run/], async () => {
      await a.command('ls -la');
      await a.command("find . -name '*.c' -newer .gitignore");
      await a.command("grep -n '_run(' src/p*.c src/main.c");
      await a.command('cat Makefile');
    }],
    ['git status, diff, log', [/modified: +src\/parser\.c/, /\+\s+cells\+\+;/, /Fix the parser for empty cells/, /Use one hash/], async () => {
      await a.command('git status');
      await a.command('git --no-pager diff');
      await a.command('git --no-pager log --oneline');
      await a.command('git --no-pager show --stat HEAD~5');
    }],
    ['dev server', [/Serving HTTP/], () => a.open('dev', `python3 -u -m http.server ${port}`, /Serving HTTP/, { stays: true })],
    ['compile error and its mend', [/parser\.c:\d+:\d+: error: .separator. undeclared/, /LD build\/tables/, /^\d+$/m], async () => {
      await a.command('make');
      await a.command(`sed -i '1a #include "separator.h"' src/parser.c`);
      await a.command('make');
      await a.command("build/tables 'a|b'");
    }],
    ['dev server', [/"GET \/README.md HTTP\/1.1" 200/], async () => {
      await a.command(`curl -s ${url}/README.md | head -3`);
      await a.look('dev');
    }],
    ['tests', [/FAIL: test_parser_097/, /AssertionError: 4656 != 4663/, /FAILED \(failures=1\)/, /Ran 300 tests/, /^OK$/m], async () => {
      await a.long('python3 -m unittest discover -v');
      await a.command("sed -i 's/4663/4656/' test_parser.py");
      await a.long('python3 -m unittest discover -v');
    }],
    ['long build', [/built build\/tables/], () => a.long('make release')],
    ['dev server', [/"GET \/missing HTTP\/1.1" 404/], async () => {
      await visit('/', '/README.md', '/src/', '/missing');
      await a.look('dev');
    }],
    ['download with progress', [/100 2048k/], () => a.long(`curl --limit-rate 200k -o /dev/null ${url}/big.bin`)],
    ['questions of a script', [/Version:/, /Publish 1\.4\.0 to staging\? \[y\/N\]/, /published 1\.4\.0/], async () => {
      await a.open('release', './release.sh', /Version:$/);
      await a.type('release', '1.4.0', /\[y\/N\]$/);
      await a.finish('release', 'y');
    }],
    ['exit code', [/health check failed/, /(exit|code) 3/, /(exit|code) 1/], async () => {
      await a.command('./deploy.sh', { code: true });
      await a.command('git diff --quiet', { code: true });
    }],
    ['dev server', [], async () => {
      await a.look('dev');
      await visit('/src/main.c', '/src/parser.c', '/CHANGES.md');
      await a.look('dev');
    }],
    ['vim', [/TODO: describe the options/], async () => {
      await a.open('vim', 'vim -u NONE -N README.md', /Reads tables/);
      await a.type('vim', '/TODO', /TODO/);
      await a.press('vim', 'ccSet SEPARATOR to choose the separator.', ['Escape'], /SEPARATOR/);
      await a.type('vim', ':wq');
      await a.command('git --no-pager diff README.md');
    }],
    ['less', [/ERROR cannot open table "orders"/], async () => {
      await a.open('less', 'less server.log', /INFO served/);
      await a.type('less', '/ERROR', /ERROR cannot/);
      await a.press('less', 'q');
    }],
    ['REPL', [/^4656$/m, /^'0b1001000110000'$/m, /ZeroDivisionError/], async () => {
      await a.open('python', 'python3 -q', />>>$/);
      await a.type('python', 'sum(range(97))', />>>$/);
      await a.type('python', 'bin(_)', />>>$/);
      await a.type('python', 'import statistics', />>>$/);
      await a.type('python', 'statistics.pstdev([3, 5, 8, 13])', />>>$/);
      await a.type('python', '1 / 0', />>>$/);
      await a.type('python', 'exit()');
    }],
    ['a shell with a state', [/-g -O0/, /total/, /parser/], async () => {
      await a.shell('work');
      await a.inShell('work', 'cd src');
      await a.inShell('work', 'export CFLAGS="-g -O0"');
      await a.inShell('work', 'echo $CFLAGS; wc -l p*.c');
      await a.inShell('work', 'for u in parser path pool; do nm ../build/$u.o | head -2; done');
      await a.inShell('work', 'cd ..');
    }],
    ['commit and push', [/3 files changed|4 files changed|5 files changed/, /main -> main/], async () => {
      await a.command('git add -A');
      await a.command("git commit -m 'Count the cells of a row'");
      await a.command('git push');
      await a.command('git status -sb');
    }],
    ['top', [/load average/], async () => {
      await a.open('top', 'top -d 1', /load average/);
      await a.look('top');
      await a.press('top', 'q');
    }],
    ['dev server', [], async () => {
      await visit('/', '/src/', '/README.md');
      await a.look('dev');
      await a.stop('dev');
    }],
  ];
}

const freePort = () => new Promise((resolve) => {
  const server = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

// play plays the day with an agent, and returns the agent.
async function play(name, begin) {
  const cwd = path.join(root, name, 'app');
  const port = await freePort();
  project(cwd);
  const visit = async (...pages) => {
    for (const page of pages) await fetch(`http://127.0.0.1:${port}${page}`).then((r) => r.text());
  };
  const agent = await begin(cwd);
  try {
    for (const [task, facts, steps] of day(agent, port, visit)) {
      const lacks = (u) => facts.filter((f) => !f.test(u.read));
      for (const u of agent.usages) u.begin(task);
      await steps();
      if (agent.usages.some((u) => lacks(u).length > 0)) await agent.older();
      for (const u of agent.usages) assert.deepEqual(lacks(u), [], `${name} has not read all facts of the task "${task}":\n${u.read}`);
    }
  } finally {
    if (transcript) fs.writeFileSync(path.join(transcript, name), agent.usages[0].log);
    await agent.end();
  }
  return agent;
}

const holdfast = await play('holdfast', Holdfast.begin);
const tmux = await play('tmux', Tmux.begin);
const thrifty = await play('thrifty', (cwd) => Tmux.begin(cwd, { clears: true }));
const usages = { holdfast: holdfast.usage, tmux: tmux.eachSecond, tmux5: tmux.each5, thrifty: thrifty.each5 };
console.log(JSON.stringify(Object.keys(holdfast.usage.tasks).map((task) => ({
  task, usage: Object.fromEntries(Object.entries(usages).map(([agent, u]) => [agent, u.tasks[task]])),
}))));
