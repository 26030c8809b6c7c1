// Makes the project in which the agents of day.mjs work: a program in C with a history, tests, scripts and a log.

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

const units = ['arena', 'buffer', 'config', 'decode', 'encode', 'error', 'filter', 'format', 'hash', 'index', 'lexer', 'limits', 'list', 'log', 'map',
  'match', 'parser', 'path', 'pool', 'queue', 'reader', 'render', 'socket', 'table', 'timer', 'token', 'tree', 'utf8', 'vector', 'writer'];

const unit = (name) => `#include "tables.h"

/* ${name}_step does one step for a character of the text. */
static int ${name}_step(int state, char c) {
	return (state * 31 + c) % 65521;
}

int ${name}_run(const char *text, int length) {
	int state = ${name.length};
	for (int i = 0; i < length; i++)
		state = ${name}_step(state, text[i]);
	return state;
}
`;

const main = `#include <stdio.h>
#include <string.h>
#include "tables.h"

int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++)
		printf("%d\\n", parser_run(argv[i], strlen(argv[i])));
	return 0;
}
`;

// The release takes a second for each unit, because its files are smaller than those of a real project.
const makefile = `OBJECTS = ${[...units, 'main'].map((u) => `build/${u}.o`).join(' ')}

build/tables: $(OBJECTS)
	@echo "LD $@"
	@cc -o $@ $(OBJECTS)

build/%.o: src/%.c
	@mkdir -p build
	cc -Wall -Wextra -O2 -g -c -o $@ $<

release: clean
	@mkdir -p build; n=0; for s in src/*.c; do \\
		n=$$((n+1)); printf '[%2d/31] cc -O3 -flto -c %s\\n' $$n $$s; \\
		cc -O3 -flto -c -o build/$$(basename $$s .c).o $$s; sleep 1; done
	@cc -flto -o build/tables build/*.o && echo "built build/tables"

clean:
	@rm -rf build

.PHONY: release clean
`;

// tests returns 150 tests. The one with the number wrong fails.
const tests = (name, wrong) => `import time
import unittest


class ${name}(unittest.TestCase):
${Array.from({ length: 150 }, (_, i) => `    def test_${name.toLowerCase()}_${String(i).padStart(3, '0')}(self):
        time.sleep(0.01)
        self.assertEqual(sum(range(${i})), ${i * (i - 1) / 2 + (i === wrong ? 7 : 0)})
`).join('\n')}`;

const readme = `# Tables

Reads tables and renders them.

## Build

    make

## Test

    python3 -m unittest discover -v

TODO: describe the options.
`;

const release = `#!/bin/bash
read -p "Version: " version
read -p "Publish $version to staging? [y/N] " sure
[ "$sure" = y ] || { echo "not published"; exit 1; }
for s in package sign upload; do echo "$s $version"; sleep 1; done
echo "published $version"
`;

const deploy = `#!/bin/bash
echo "connecting to staging"
sleep 2
echo "health check failed: 2 of 5 instances are ready" >&2
exit 3
`;

const two = (n) => String(n).padStart(2, '0');

const logLine = (_, i) => `2026-03-24T10:${two(Math.floor(i / 60))}:${two(i % 60)}Z ${
  i === 1877 ? 'ERROR cannot open table "orders": permission denied' : `INFO served /tables/${i} in ${i % 17} ms`}\n`;

// project makes the project in a directory. In it the agent has begun a change, which does not compile yet; its editor is
// not part of the day.
export function project(cwd) {
  fs.mkdirSync(cwd, { recursive: true });
  const git = (args, env) => execFileSync('git', args, { cwd, env: { ...process.env, ...env } });
  const write = (name, text, mode = 0o644) => {
    fs.mkdirSync(path.dirname(path.join(cwd, name)), { recursive: true });
    fs.writeFileSync(path.join(cwd, name), text, { mode });
  };
  let day = 10;
  const commit = (subject) => {
    const date = `2026-03-${++day}T10:00:00Z`;
    git(['add', '-A']);
    git(['commit', '-q', '-m', subject], { GIT_AUTHOR_DATE: date, GIT_COMMITTER_DATE: date });
  };
  git(['init', '-q', '-b', 'main']);
  git(['config', 'user.name', 'Dev']);
  git(['config', 'user.email', 'dev@example.org']);
  write('.gitignore', 'build/\n__pycache__/\n*.log\n');
  write('README.md', readme);
  write('Makefile', makefile);
  write('src/tables.h', units.map((u) => `int ${u}_run(const char *text, int length);\n`).join(''));
  for (const u of units) write(`src/${u}.c`, unit(u));
  write('src/main.c', main);
  commit('Add the units');
  write('test_parser.py', tests('Parser', 97));
  write('test_render.py', tests('Render', -1));
  commit('Test the parser and the renderer');
  let changes = '';
  for (const subject of ['Read configuration from the environment', 'Bound the size of the arena', 'Decode UTF-8 in one pass', 'Fix the parser for empty cells',
    'Log errors with their place', 'Render wide characters', 'Use one hash for maps and tables', 'Close sockets on errors', 'Add a timer for slow readers']) {
    write('CHANGES.md', changes += `- ${subject}\n`);
    commit(subject);
  }
  write('release.sh', release, 0o755);
  write('deploy.sh', deploy, 0o755);
  commit('Add scripts for a release');
  git(['init', '-q', '--bare', `${cwd}.git`]);
  git(['remote', 'add', 'origin', `${cwd}.git`]);
  git(['push', '-q', '-u', 'origin', 'main']);
  write('server.log', Array.from({ length: 3000 }, logLine).join(''));
  write('big.bin', Buffer.alloc(2 << 20, 7));
  write('src/separator.h', "/* The character between two cells. */\nenum { separator = '|' };\n");
  write('src/parser.c', unit('parser')
    .replace('int state = 6;', 'int state = 6, cells = 0;')
    .replace('i++)\n\t\tstate = parser_step(state, text[i]);', 'i++) {\n\t\tif (text[i] == separator)\n\t\t\tcells++;\n\t\tstate = parser_step(state, text[i]);\n\t}'));
}
