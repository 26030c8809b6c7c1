// Starts and replaces the programs proxy and supervisor, in Node and Electron.

import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { access, chmod, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { HoldfastClient } from './client.js';
import type { StartOptions } from './dialer.js';
import { asError, HoldfastError } from './errors.js';
import type { Transport } from './transport.js';
import { unixSocket } from './unix.js';
import { isOlder, isRelease } from './version.js';

const PROGRAMS = ['proxy', 'supervisor'];
/** The time that one of the programs may take for a command. An upgrade waits for the old and the new program. */
const COMMAND_MS = 90_000;
/** Bytes of the longest path of a socket, on macOS and elsewhere, and of the longest name of a socket in it. */
const MAX_SOCKET_PATH = process.platform === 'darwin' ? 103 : 107;
const MAX_SOCKET_NAME = 40;
/** The directory in `dir` with a copy of the programs of each version. */
const COPIES = 'programs';
/** The names of copies that are being made begin with this. They are removed after a day, if the process that made them has died. */
const DRAFT = '.draft-';
const DRAFT_MS = 24 * 3600 * 1000;

/**
 * start returns a client of the proxy that uses a directory. It starts the programs if none runs there, and replaces
 * older programs. No session ends, whatever fails. If a replacement fails, the older programs continue, the client is
 * connected to them, and `onUpgrade` receives the error.
 *
 * Errors: `invalid_argument` if `dir` is empty; `programs_missing` if there are no programs for this system; `connect` if
 * the programs cannot be copied or do not start; those of `connect`.
 */
export async function start(options: StartOptions): Promise<HoldfastClient> {
  const { dir: given, app, programs: source, onUpgrade, ...rest } = options;
  if (!given) throw new HoldfastError('invalid_argument', 'dir is empty; name the directory of the app\'s terminals');
  const dir = resolve(given);
  await mkdir(dir, { recursive: true, mode: 0o700 });
  const mine = await copyOf(source ?? packaged(), dir);
  const path = socketPath(dir);
  let starting: Promise<void> | undefined;
  const reach = async (signal: AbortSignal): Promise<Transport> => {
    try {
      return await unixSocket(path, signal);
    } catch { // the proxy has not been started yet, or has crashed, which all connections notice at once
      await (starting ??= startNewest(mine, dir).finally(() => { starting = undefined; }));
      return unixSocket(path, signal);
    }
  };
  const client = await HoldfastClient.connect({ ...rest, client: rest.client ?? ['app', app].join(' ').trim(), transport: reach });
  try {
    await upgrade(client, mine, dir, onUpgrade);
    await removeCopies(client, mine, dir);
  } catch (err) {
    await client.close();
    throw err;
  }
  return client;
}

/**
 * startNewest starts the newest copy of the programs that starts. Another version of the app may have copied newer ones,
 * and may have replaced the running programs by them. If none starts, startNewest throws the error of this version's.
 */
async function startNewest(mine: Copy, dir: string): Promise<void> {
  const all = (await copies(dir)).filter((copy) => isRelease(copy.version) || copy.version === mine.version);
  all.sort((a, b) => (isOlder(a.version, b.version) ? 1 : isOlder(b.version, a.version) ? -1 : 0));
  let error: unknown;
  for (const copy of all) {
    try {
      await run(copy, dir, 'start');
      return;
    } catch (err) {
      if (copy.version === mine.version) error = err;
    }
  }
  throw error;
}

/** Copy is a directory with the programs of one version. */
interface Copy {
  path: string;
  version: string;
}

/** upgrade replaces the running programs if one of them is older. */
async function upgrade(client: HoldfastClient, mine: Copy, dir: string, report: StartOptions['onUpgrade']): Promise<void> {
  const from = await oldest(client);
  if (!isOlder(from, mine.version)) return;
  let error: HoldfastError | undefined;
  try {
    await run(mine, dir, 'upgrade');
  } catch (err) {
    // Another process of the app may have replaced the programs at the same time.
    if (isOlder(await oldest(client), mine.version)) error = asError(err, 'connect');
  }
  report?.({ from, to: mine.version, ...(error !== undefined && { error }) });
}

/** oldest returns the version of the older one of both running programs. */
async function oldest(client: HoldfastClient): Promise<string> {
  const { proxy, supervisor } = await client.status();
  return supervisor && isOlder(supervisor.version, proxy.version) ? supervisor.version : proxy.version;
}

/** packaged returns the directory with the programs in the package for this system. */
function packaged(): string {
  const name = `@holdfast/${process.platform}-${process.arch}`;
  try {
    return join(dirname(createRequire(import.meta.url).resolve(`${name}/package.json`)), 'bin');
  } catch {
    throw new HoldfastError('programs_missing', `the package ${name} is not installed: it has the programs for this system`, { retryable: false });
  }
}

/**
 * copyOf copies the programs into a directory of their version in dir, because an installer may overwrite or remove the
 * files of the app while the programs run, and because the system cannot execute files in Electron's archives.
 */
async function copyOf(source: string, dir: string): Promise<Copy> {
  try {
    const version = await versionOf(source);
    const path = join(dir, COPIES, version);
    if (!(await isThere(path))) await copy(source, path);
    return { path, version };
  } catch (err) {
    throw err instanceof HoldfastError ? err : new HoldfastError('connect', `copy the programs of ${source} into ${dir}: ${asError(err).message}`);
  }
}

async function copy(source: string, path: string): Promise<void> {
  const draft = join(dirname(path), `${DRAFT}${randomBytes(8).toString('hex')}`);
  try {
    await mkdir(draft, { recursive: true, mode: 0o700 });
    for (const program of PROGRAMS) {
      await writeFile(join(draft, program), await readFile(join(source, program)), { mode: 0o700, flush: true });
      await chmod(join(draft, program), 0o700); // whatever the umask is
    }
    await rename(draft, path);
  } catch (err) {
    await rm(draft, { recursive: true, force: true });
    if (!(await isThere(path))) throw err; // otherwise another process of the app has made the copy
  }
}

/**
 * versionOf returns the version of programs. A package of Holdfast names it. For other directories it is a sum of the
 * programs, unless they name the version of a release. A package.json beside such a directory may be that of the app.
 */
async function versionOf(source: string): Promise<string> {
  const described = await readFile(join(dirname(source), 'package.json'), 'utf8').then((text) => JSON.parse(text) as { name?: string; version?: string }).catch(() => undefined);
  if (described?.name?.startsWith('@holdfast/') && described.version !== undefined) return `v${described.version}`;
  const printed = (await execute(join(source, 'proxy'), ['--version'], process.env)).trim().split(' ').at(-1) ?? '';
  if (isRelease(printed)) return printed;
  const sum = createHash('sha256');
  for (const program of PROGRAMS) sum.update(await readFile(join(source, program)));
  return sum.digest('hex').slice(0, 16);
}

async function isThere(path: string): Promise<boolean> {
  return access(path).then(() => true, () => false);
}

/** copies returns the copies in dir. */
async function copies(dir: string): Promise<Copy[]> {
  const names = await readdir(join(dir, COPIES));
  return names.filter((name) => !name.startsWith(DRAFT)).map((name) => ({ path: join(dir, COPIES, name), version: name }));
}

/** removeCopies removes copies of versions that neither run, nor are this one, nor are the latest other one. */
async function removeCopies(client: HoldfastClient, mine: Copy, dir: string): Promise<void> {
  const { proxy, supervisor } = await client.status();
  if (!supervisor) return; // it may be any of them
  const keep = new Set([proxy.version, supervisor.version, mine.version]);
  const others = (await copies(dir)).filter((copy) => !keep.has(copy.version));
  const madeAt = new Map(await Promise.all(others.map(async ({ path }) => [path, await modified(path)] as const)));
  // The keeper of the sessions returns to the program before if a new one fails, so that one must stay.
  others.sort((a, b) => (madeAt.get(b.path) ?? 0) - (madeAt.get(a.path) ?? 0));
  const drafts = (await readdir(join(dir, COPIES))).filter((name) => name.startsWith(DRAFT)).map((name) => join(dir, COPIES, name));
  const removable = others.slice(1).map((copy) => copy.path);
  for (const path of drafts) if (Date.now() - (await modified(path)) > DRAFT_MS) removable.push(path);
  for (const path of removable) await rm(path, { recursive: true, force: true }).catch(() => {}); // the next start tries it again
}

function modified(path: string): Promise<number> {
  return stat(path).then((s) => s.mtimeMs, () => Date.now());
}

/** run runs a command of the proxy's program for a directory. */
function run(programs: Copy, dir: string, command: string): Promise<string> {
  const env: NodeJS.ProcessEnv = { ...process.env, HOLDFAST_DIR: dir };
  delete env['HOLDFAST_SUPERVISOR']; // the one beside the proxy
  return execute(join(programs.path, 'proxy'), [command], env);
}

function execute(program: string, args: string[], env: NodeJS.ProcessEnv): Promise<string> {
  return new Promise((done, failed) => {
    execFile(program, args, { env, timeout: COMMAND_MS }, (err, out, text) => {
      if (err === null) return done(out);
      failed(new HoldfastError('connect', `${[program, ...args].join(' ')}: ${text.trim() || err.message}`));
    });
  });
}

/** socketPath returns the path of the proxy's socket. If a path in dir would be too long, the sockets are in /tmp. */
function socketPath(dir: string): string {
  if (Buffer.byteLength(dir) + 1 + MAX_SOCKET_NAME <= MAX_SOCKET_PATH) return join(dir, 'proxy.sock');
  return `/tmp/holdfast-${process.geteuid?.() ?? 0}-${createHash('sha256').update(dir).digest('hex').slice(0, 8)}/proxy.sock`;
}
