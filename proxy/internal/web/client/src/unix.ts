// The transports of Node and Electron: a Unix socket, or a named pipe on Windows, the output and input of ssh, and the
// connection through a gate.

import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { HoldfastError } from './errors.js';
import { pause } from './pause.js';
import { StreamTransport } from './stream.js';
import type { SSHOptions, Transport } from './transport.js';

export { gate } from './gate.js';

/** How long a connection with a socket is tried again while its backlog is full, and the pause between two attempts. */
const CONNECT_MS = 5000;
const CONNECT_PAUSE_MS = 10;
/** The pause before an attempt to reach a host follows one that failed. Hosts may shut out an address that fails often. */
const SSH_PAUSE_MS = 1000;
const MAX_SSH_PAUSE_MS = 10_000;
/** Bytes of ssh's messages that are kept, for errors. */
const MAX_SSH_TEXT = 4096;
/** Bytes before and in the greeting of `proxy stdio`. */
const MAX_GREETING = 64 << 10;

/**
 * unixSocket connects to a proxy's socket. While the backlog of the proxy is full, as in a long handoff, it tries again, for 5 s.
 * Errors: `connect`.
 */
export async function unixSocket(path: string, signal: AbortSignal): Promise<Transport> {
  for (const deadline = Date.now() + CONNECT_MS; ; await pause(CONNECT_PAUSE_MS, signal)) {
    try {
      return await connected(path);
    } catch (err) {
      const { code, message } = err as NodeJS.ErrnoException;
      if (code !== 'EAGAIN' || Date.now() > deadline || signal.aborted) throw new HoldfastError('connect', message);
    }
  }
}

function connected(path: string): Promise<Transport> {
  return new Promise((done, refused) => {
    const sock = connect(path);
    sock.once('error', refused);
    sock.once('connect', () => {
      sock.off('error', refused);
      done(new StreamTransport(sock, sock, () => sock.destroySoon(), () => sock.destroy()));
    });
  });
}

/**
 * ssh returns a function that reaches the proxy of another host: it runs ssh, which runs `proxy stdio` there. ssh may ask
 * for a password in the terminal of this process, if it has one; after a connection was lost it asks nothing.
 * Errors: `connect`; `unauthorized` if the host refuses the user, or has another key than it had. If the signal is aborted,
 * the attempt ends.
 */
export function ssh(o: SSHOptions): (signal: AbortSignal) => Promise<Transport> {
  if (!/^[^-\s][^\s]*$/.test(o.host)) throw new HoldfastError('invalid_argument', `${JSON.stringify(o.host)} is no name of a host`);
  let hasBegun = false, hasLost = false, wait = 0;
  return async (signal) => {
    await pause(wait, signal);
    wait = Math.min(Math.max(2 * wait, SSH_PAUSE_MS), MAX_SSH_PAUSE_MS);
    const transport = await runSSH(o, signal, hasBegun, hasLost, () => { hasLost = true; });
    hasBegun = true;
    wait = 0;
    return transport;
  };
}

function runSSH(o: SSHOptions, signal: AbortSignal, isLater: boolean, isQuiet: boolean, lost: () => void): Promise<Transport> {
  const stopped = (): HoldfastError => new HoldfastError('connect', 'the attempt was ended');
  if (signal.aborted) return Promise.reject(stopped());
  const [program, ...args] = o.command ?? ['ssh', '-o', 'ConnectTimeout=15', '-o', 'ServerAliveInterval=5'];
  const stdio = [o.program ?? 'proxy', 'stdio', '--proxy', o.proxy ?? 'proxy'];
  if (o.dir !== undefined) stdio.push('--dir', o.dir);
  if (isLater) stdio.push('--again');
  else if (o.start === true) stdio.push('--start');
  const line = `sh -c 'PATH="/usr/libexec/holdfast:$PATH:$HOME/.local/bin:/usr/local/bin:/opt/homebrew/bin:/opt/homebrew/opt/holdfast/libexec/holdfast"; export PATH; exec "$0" "$@"'`
    + stdio.map((arg) => ` '${arg.replaceAll("'", `'\\''`)}'`).join('');
  const child = spawn(program as string, [...args, '-T', ...(isQuiet ? ['-o', 'BatchMode=yes'] : []), '--', o.host, line]);
  let text = '';
  child.stderr.setEncoding('utf8').on('data', (piece: string) => { text = (text + piece).slice(-MAX_SSH_TEXT); });
  child.stdin.on('error', () => {}); // the event close follows
  return new Promise((done, failed) => {
    let seen = Buffer.alloc(0);
    const stop = (): void => end(stopped());
    const settle = (): void => signal.removeEventListener('abort', stop);
    const end = (err: HoldfastError): void => {
      settle();
      child.kill();
      failed(err);
    };
    signal.addEventListener('abort', stop);
    child.once('error', (err) => end(new HoldfastError('connect', `run ${program}: ${err.message}`)));
    child.once('close', (code) => {
      settle();
      const last = text.trim().split('\n').at(-1)?.trim() ?? '';
      const isRefused = /Permission denied|Host key verification failed/.test(text);
      failed(new HoldfastError(isRefused ? 'unauthorized' : 'connect', `${o.host}: ${last === '' ? `ssh ended with code ${code}` : last}`));
    });
    const read = (piece: Buffer): void => {
      seen = Buffer.concat([seen, piece]);
      const found = /(^|\n)holdfast-stdio (\S+) \S+\n/.exec(seen.toString('latin1'));
      if (found === null) {
        if (seen.length > MAX_GREETING) end(new HoldfastError('connect', `${o.host}: its output has no greeting of proxy stdio`));
        return;
      }
      if (found[2] !== '1') return end(new HoldfastError('connect', `${o.host}: proxy stdio there speaks format ${found[2]}, and this client 1`));
      settle();
      child.stdout.off('data', read);
      child.stdout.pause();
      const frames = seen.subarray(found.index + found[0].length);
      if (frames.length > 0) child.stdout.unshift(frames);
      child.once('close', lost);
      done(new StreamTransport(child.stdout, child.stdin, () => {
        child.off('close', lost);
        child.stdin.end();
      }, () => child.kill()));
    };
    child.stdout.on('data', read);
  });
}
