import { createHash } from 'node:crypto';
import { isIP } from 'node:net';
import { connect } from 'node:tls';
import type { TLSSocket } from 'node:tls';
import { asError, HoldfastError } from './errors.js';
import * as frames from './frames.js';
import { ANSWER_MS, checkHost, enterMessage, refusalOf } from './gatesocket.js';
import { parse } from './message.js';
import { StreamTransport } from './stream.js';
import type { GateOptions, Transport } from './transport.js';

/** The time without traffic after which the system asks whether the gate is still there. */
const PROBE_MS = 5000;
/** The time that a gate may take to accept a connection before the next gate is tried beside it. */
const NEXT_MS = 500;

/**
 * gate returns a function that enters a host through a gate. Only the first connection may start a proxy on the host,
 * because the host's user may have stopped it since. Errors: `connect`, and those that a further attempt would meet
 * again: `unauthorized`, `unknown_host`, `invalid_argument`. If the signal is aborted, the attempt ends.
 */
export function gate(o: GateOptions): (signal: AbortSignal) => Promise<Transport> {
  checkHost(o.host);
  const places = o.addresses.map(parseAddress);
  if (places.length === 0) throw new HoldfastError('invalid_argument', 'the options of the gate have no address');
  places.sort(() => Math.random() - 0.5); // the clients of several gates spread over them
  let hasBegun = false;
  return async (signal) => {
    const errors: HoldfastError[] = [];
    for (let remaining = [...places]; remaining.length > 0;) {
      const first = await dialFirst(remaining, o.fingerprint, signal);
      if ('errors' in first) {
        errors.push(...first.errors);
        break;
      }
      const { sock, place } = first;
      const stop = (): void => void sock.destroy();
      signal.addEventListener('abort', stop);
      try {
        await enter(sock, o, hasBegun);
        hasBegun = true;
        places.unshift(...places.splice(places.indexOf(place), 1)); // the next connection begins with this gate
        return new StreamTransport(sock, sock, () => sock.destroySoon(), () => sock.destroy());
      } catch (err) {
        sock.destroy();
        errors.push(asError(err));
      } finally {
        signal.removeEventListener('abort', stop);
      }
      remaining = remaining.filter((other) => other !== place);
    }
    throw worst(errors, hasBegun);
  };
}

/**
 * dialFirst connects with the first gate that answers. It tries the gates in their order: the next one as soon as one
 * has failed, or has not answered for NEXT_MS. It returns the errors if all gates have failed, or if the signal is aborted.
 */
function dialFirst(places: Place[], fingerprint: string, signal: AbortSignal): Promise<{ sock: TLSSocket; place: Place } | { errors: HoldfastError[] }> {
  return new Promise((settle) => {
    const errors: HoldfastError[] = [];
    const stop = new AbortController(); // of the attempts that are too late
    let next = 0, late: ReturnType<typeof setTimeout> | undefined;
    const done: typeof settle = (result) => {
      clearTimeout(late);
      signal.removeEventListener('abort', end);
      stop.abort();
      settle(result);
    };
    const end = (): void => done({ errors: [new HoldfastError('connect', 'the attempt was ended')] });
    signal.addEventListener('abort', end);
    if (signal.aborted) return end();
    const tryNext = (): void => {
      clearTimeout(late);
      const place = places[next++];
      if (place === undefined || stop.signal.aborted) return;
      late = setTimeout(tryNext, NEXT_MS);
      dial(place, fingerprint, stop.signal).then((sock) => {
        if (stop.signal.aborted) return void sock.destroy();
        done({ sock, place });
      }, (err: unknown) => {
        errors.push(asError(err));
        if (errors.length < places.length) return tryNext();
        done({ errors });
      });
    };
    tryNext();
  });
}

/**
 * worst chooses among the errors of several gates. A gate that does not answer, or whose host is away, may serve later.
 * But a client that was never connected must be told at once if the only gates that answer refuse it.
 */
function worst(errors: HoldfastError[], hasBegun: boolean): HoldfastError {
  const passing = errors.find((err) => err.retryable && (hasBegun || err instanceof PassingRefusal));
  return passing ?? errors.find((err) => !err.retryable) ?? (errors[0] as HoldfastError);
}

/** A PassingRefusal is the refusal of a gate that a further attempt may not meet again. */
class PassingRefusal extends HoldfastError {}

interface Place { address: string; host: string; port: number }

function parseAddress(address: string): Place {
  const colon = address.lastIndexOf(':');
  const host = address.slice(0, colon).replace(/^\[(.*)\]$/, '$1'), port = Number(address.slice(colon + 1));
  if (colon < 1 || !Number.isInteger(port) || port < 1 || port > 65535) {
    throw new HoldfastError('invalid_argument', `${JSON.stringify(address)} is no address of the form HOST:PORT`);
  }
  return { address, host, port };
}

/** dial connects to a gate, and compares the fingerprint of its certificate. Names and times in it do not count. */
function dial({ address, host, port }: Place, fingerprint: string, signal: AbortSignal): Promise<TLSSocket> {
  return new Promise((done, failed) => {
    const sock = connect({ host, port, minVersion: 'TLSv1.3', rejectUnauthorized: false, ...(isIP(host) === 0 && { servername: host }) });
    const end = (err: HoldfastError): void => {
      settle();
      sock.destroy();
      failed(err);
    };
    const settle = (): void => {
      clearTimeout(late);
      signal.removeEventListener('abort', abort);
    };
    const unreached = (why: string): void => end(new HoldfastError('connect', `gate ${address}: ${why}`));
    const closed = (): void => unreached('it has closed the connection');
    const abort = (): void => unreached('the attempt was ended, or another gate has answered first');
    signal.addEventListener('abort', abort);
    const late = setTimeout(() => unreached(`it accepts no connection within ${ANSWER_MS} ms`), ANSWER_MS);
    sock.setKeepAlive(true, PROBE_MS);
    sock.on('error', (err) => unreached(err.message)); // later, too: the event close follows
    sock.on('close', closed);
    sock.once('secureConnect', () => {
      const found = createHash('sha256').update(sock.getPeerCertificate().raw ?? '').digest('hex');
      if (found !== fingerprint) {
        return end(new HoldfastError('unauthorized', 'the certificate of the gate has another fingerprint: it is not the gate that was meant, or it has a new certificate'));
      }
      settle();
      sock.off('close', closed);
      done(sock);
    });
  });
}

/** enter asks the gate for the connection with the host's proxy. */
function enter(sock: TLSSocket, o: GateOptions, isLater: boolean): Promise<void> {
  return new Promise((done, failed) => {
    const end = (err?: HoldfastError): void => {
      clearTimeout(late);
      sock.off('close', lost).off('data', read).pause();
      if (err === undefined) done();
      else failed(err);
    };
    const late = setTimeout(() => end(new HoldfastError('connect', `the gate does not answer within ${ANSWER_MS} ms`)), ANSWER_MS);
    const lost = (): void => end(new HoldfastError('connect', 'the gate has closed the connection'));
    let seen = Buffer.alloc(0);
    const read = (piece: Buffer): void => {
      seen = Buffer.concat([seen, piece]);
      if (seen.length < 4) return;
      const n = seen.readUInt32BE();
      if (n === 0 || n > frames.MAX_HELLO) return end(new HoldfastError('decode', `the gate sends a frame of ${n} bytes`));
      if (seen.length < 4 + n) return;
      end(answered(seen.subarray(4, 4 + n)));
      if (seen.length > 4 + n) sock.unshift(seen.subarray(4 + n));
    };
    sock.on('close', lost).on('data', read);
    sock.write(frames.frame(frames.CONTROL, new TextEncoder().encode(enterMessage(o, isLater))));
  });
}

/** answered returns the error in the gate's answer, or undefined if the host was entered. */
function answered(frame: Uint8Array): HoldfastError | undefined {
  if (frame[0] !== frames.CONTROL) return new HoldfastError('decode', `the gate answers with a frame of kind ${frame[0]}`);
  try {
    const refusal = refusalOf(parse(new TextDecoder().decode(frame.subarray(1))), 'entered');
    return refusal?.code === 'connect' ? new PassingRefusal(refusal.code, refusal.message) : refusal;
  } catch (err) {
    return asError(err);
  }
}
