// What is said of sessions.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { shortcuts } from '../../node_modules/.test/shortcuts.js';
import { ago, bytes, command, ended, failed, loss, parse, place, reported, revival, runs, says, title, took, uses, who } from '../../node_modules/.test/words.js';

test('ago', () => {
  const now = Date.parse('2026-09-01T12:00:00Z');
  const of = (s) => ago(new Date(now - s * 1000), now);
  assert.deepEqual([0, 9, 10, 59, 60, 3599, 3600, 86399, 86400, 2 * 86400, -5].map(of), ['now', 'now', '10 s', '59 s', '1 min', '59 min', '1 h', '23 h', '1 day', '2 days', 'now']);
  assert.equal(ago('nonsense', now), '');
  assert.deepEqual([400, 1234, 12_000, 180_000].map(took), ['0.4 s', '1.2 s', '12 s', '3 min']);
});

test('parse makes words, and leaves the rest to a shell', () => {
  for (const [line, want] of [
    ['', []],
    ['  ', []],
    ['htop', ['htop']],
    ['make  -j8 all', ['make', '-j8', 'all']],
    [`vim 'a b' "c d"e`, ['vim', 'a b', 'c de']],
    [`printf ''`, ['printf', '']],
    ['ls | wc', ['/bin/sh', '-c', 'ls | wc']],
    ['echo $HOME', ['/bin/sh', '-c', 'echo $HOME']],
    ['A=1 env', ['/bin/sh', '-c', 'A=1 env']],
    ["echo 'x", ['/bin/sh', '-c', "echo 'x"]],
  ]) assert.deepEqual(parse(line), want, line);
});

test('a session is called by its user, its maker, its program, in this order', () => {
  const s = { id: 's', argv: ['/usr/bin/make', '-j8', 'a b'], cwd: '/home/ada', state: 'running', attachments: 0 };
  assert.equal(title(s), "make -j8 'a b'");
  assert.equal(title({ ...s, title: 'Build' }), 'Build');
  assert.equal(title({ ...s, title: 'Build', labels: { title: 'Mine' } }), 'Mine');
  assert.equal(title({ ...s, title: 'a\u202eb\u2066c\u2069 שלום' }), 'abc שלום');
  assert.equal(title({ ...s, title: '\u202e' }), "make -j8 'a b'");
  assert.equal(command(['/bin/sh', '-c', 'ls | wc']), 'ls | wc');
  assert.equal(place({ ...s, cwd: '/home/ada/src/holdfast/proxy/client' }), '…/proxy/client');
  assert.equal(place({ ...s, cwd: `/${'x'.repeat(60)}` }).length, 42);
  assert.deepEqual([s, { ...s, pid: 1, foreground: { pid: 1, name: 'bash' } }, { ...s, pid: 1, foreground: { pid: 2, name: 'vim' } }, { ...s, pid: 1, foreground: { pid: 1, stopped: true } }].map(runs), ['', '', 'vim', 'stopped']);
  assert.equal(place({ ...s, current_cwd: '', foreground: { pid: 1, cwd: '/from/the/system' } }), '/from/the/system');
});

test('how it ended, and who looks', () => {
  const s = { state: 'exited', exit_code: 2, argv: [], attachments: 0 };
  assert.equal(ended(s), 'exited 2');
  assert.equal(ended({ ...s, exit: { signal: 'SIGTERM' } }), 'killed by SIGTERM');
  assert.equal(ended({ ...s, exit: { signal: 'SIGHUP', reason: 'user_requested', ended_by: 'cli' } }), 'ended by cli');
  assert.deepEqual([failed(s), failed({ ...s, exit: { reason: 'user_requested' } }), failed({ ...s, exit_code: 0 }), failed({ ...s, state: 'running' })], [true, false, false, false]);
  assert.equal(ended({ ...s, exit: { signal: 'SIGHUP', timed_out: true } }), 'timed out');
  assert.equal(ended({ ...s, state: 'running' }), '');
  assert.equal(who(s), '');
  assert.equal(who({ ...s, attachments: 2 }), '2 viewers');
  assert.equal(who({ ...s, attachments: 4, viewers: [{ client: 'page' }, { client: 'page' }, {}] }), 'page ×2, somebody, 1 more');
});

test('no key means two things', () => {
  assert.equal(new Set(shortcuts.map((s) => s.code)).size, shortcuts.length);
});

test('what a session uses, and that it is frozen', () => {
  assert.deepEqual([0, 999, 1000, 5 << 20, 300 << 20, 3 * 2 ** 30].map(bytes), ['0 B', '999 B', '1.0 KiB', '5.0 MiB', '300 MiB', '3.0 GiB']);
  const s = { id: 'a', state: 'running', argv: ['sh'] };
  assert.deepEqual([uses(s), says(s)], ['', 'running']);
  assert.deepEqual([uses({ ...s, cage: { memory_bytes: 5 << 20, oom_kills: 2 } }), says({ ...s, frozen: true })], ['5.0 MiB, 2 killed for memory', 'frozen']);
  assert.deepEqual([uses({ ...s, state: 'exited', exit_code: 1, cage: { memory_bytes: 9 } }), says({ ...s, state: 'exited', exit_code: 1, frozen: true })], ['', 'exited 1']);
});

const lost = (more) => ({ state: 'lost', argv: ['make', 'all'], cwd: '/src', last_io_at: '2026-09-01T11:00:00Z', lost: { offset: 12345, seen_at: '2026-09-01T10:00:00Z', cwd: '/src/b' }, exit: { reason: 'lost', exit_code: -1 }, ...more });

test('a lost session is neither running nor failed', () => {
  const s = lost({ command: { line: 'make -j8', prompt: false } });
  assert.deepEqual([ended(s), failed(s), says(s)], ['lost with the machine', false, 'lost with the machine']);
  assert.match(loss(s, Date.parse('2026-09-01T12:00:00Z')), /^Lost with the machine\. Last seen .* \(2 h ago\); it ran make -j8\. Its screen is exact up to byte 12,345 of its output\.$/);
  assert.match(loss(lost({ command: { line: 'ls', prompt: true } })), /it ran make all\./);
});

test('a lost session is revived with the command of its label or a shell, and with the command that was lost only if its label says so', () => {
  const of = (more) => {
    const { argv, cwd } = revival(lost(more));
    return [argv, cwd];
  };
  const shell = ['/bin/sh', '-c', 'exec "${SHELL:-/bin/sh}" -l'];
  assert.deepEqual(of({}), [shell, '/src/b']);
  assert.deepEqual(of({ argv: ['/bin/bash', '-l'] }), [undefined, '/src/b']); // it stays as it is
  assert.deepEqual(of({ argv: ['bash', '-c', 'rm -r x'] }), [shell, '/src/b']);
  assert.deepEqual(of({ argv: ['fish', 'deploy.fish'] }), [shell, '/src/b']);
  assert.deepEqual(of({ labels: { resume_argv: 'agent --resume 7' } }), [['sh', '-c', 'agent --resume 7'], '/src/b']);
  assert.deepEqual(of({ labels: { resume_argv: '["agent", "a b"]' } }), [['agent', 'a b'], '/src/b']);
  assert.deepEqual(of({ labels: { revive: 'argv' } }), [undefined, '/src/b']);
  assert.deepEqual(of({ labels: { revive: 'argv' }, argv: ['make', 'KEY=********'] }), [shell, '/src/b']);
  assert.deepEqual(of({ labels: { revive: 'shell', resume_argv: 'agent --resume 7' } }), [shell, '/src/b']);
  for (const bad of ['[', '[]', '[1]']) assert.ok(revival(lost({ labels: { resume_argv: bad } })) instanceof Error, bad);
});

test('a program that reports its status is named by it', () => {
  const at = '2026-11-01T00:00:00Z';
  const of = (program, more) => ({ id: 's', state: 'running', argv: ['sh'], program: program && { at, ...program }, ...more });
  assert.equal(reported(of({ state: 'blocked', kind: 'permission', app: 'agent', message: 'Deploy?' })), 'agent waits for you (permission): Deploy?');
  assert.equal(reported(of({ state: 'error' })), 'failed');
  assert.equal(reported(of({ state: 'done', app: 'cargo' })), 'cargo done');
  assert.deepEqual([reported(of({ state: 'working' })), reported(of({ state: 'idle' })), reported(of(undefined)), reported(undefined)], [undefined, undefined, undefined, undefined]);
  assert.deepEqual([says(of({ state: 'blocked' })), says(of({ state: 'idle' })), says(of(undefined))], ['blocked', 'running', 'running']);
});
