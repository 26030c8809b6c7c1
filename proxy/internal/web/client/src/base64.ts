import { HoldfastError } from './errors.js';

const PIECE = 8192; // characters per call, because a call may have only so many arguments

export function toBase64(bytes: Uint8Array): string {
  let text = '';
  for (let i = 0; i < bytes.length; i += PIECE) text += String.fromCharCode(...bytes.subarray(i, i + PIECE));
  return btoa(text);
}

export function fromBase64(text: string): Uint8Array {
  let raw: string;
  try {
    raw = atob(text);
  } catch {
    throw new HoldfastError('decode', 'what is no base64');
  }
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

/** token returns 2n random hexadecimal digits. */
export function token(n: number): string {
  const bytes = new Uint8Array(n);
  (globalThis as unknown as { crypto: { getRandomValues(b: Uint8Array): void } }).crypto.getRandomValues(bytes);
  return Array.from(bytes, (b) => b.toString(16).padStart(2, '0')).join('');
}
