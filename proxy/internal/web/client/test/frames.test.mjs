import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as frames from '../dist/frames.js';
import { ByteQueue } from '../dist/queue.js';
import { random, seed } from './fake.mjs';

const hex = (s) => Uint8Array.from(s.trim().split(/\s+/), (b) => parseInt(b, 16));

// SPEC.md's own bytes.
const OUTPUT = hex('00 00 00 11  01  00 00 00 07  00 00 00 00 00 00 01 02  68 69 0d 0a');
const CONTROL = hex(`00 00 00 21  00
  7b 22 74 79 70 65 22 3a 22 6f 6b 22 2c 22 72 65
  71 75 65 73 74 5f 69 64 22 3a 22 72 2d 31 22 7d`);

test('frames are those of the specification', () => {
  assert.deepEqual(frames.frame(frames.OUTPUT, frames.inputPayload(7, 258, new TextEncoder().encode('hi\r\n'))), OUTPUT);
  assert.deepEqual(frames.frame(frames.CONTROL, new TextEncoder().encode('{"type":"ok","request_id":"r-1"}')), CONTROL);
  const { attachment, offset, data } = frames.parseData(OUTPUT.subarray(5));
  assert.deepEqual([attachment, offset, new TextDecoder().decode(data)], [7, 258, 'hi\r\n']);
});

test('a stream is read alike wherever it is cut', () => {
  const stream = Uint8Array.from([...OUTPUT, ...CONTROL, 0, 0, 0, 1, 9, ...OUTPUT]);
  const want = [[1, OUTPUT.length - 5], [0, CONTROL.length - 5], [9, 0], [1, OUTPUT.length - 5]];
  for (let i = 0; i <= stream.length; i++) {
    for (let j = i; j <= stream.length; j++) {
      const r = new frames.FrameReader(), got = [];
      for (const piece of [stream.subarray(0, i), stream.subarray(i, j), stream.subarray(j)]) {
        r.read(piece, (kind, payload) => got.push([kind, payload.length]));
      }
      assert.deepEqual(got, want, `cut at ${i} and ${j}`);
    }
  }
});

test('a frame that cannot be is refused', () => {
  const read = (bytes, max) => {
    const r = new frames.FrameReader();
    if (max) r.max = max;
    r.read(bytes, () => {});
  };
  assert.throws(() => read(hex('00 00 00 00')), { code: 'decode' });
  assert.throws(() => read(hex('00 01 00 01')), { code: 'decode' }); // before hello
  assert.throws(() => read(hex('00 10 00 01'), frames.MAX_FRAME), { code: 'decode' });
  assert.doesNotThrow(() => read(hex('00 10 00 00'), frames.MAX_FRAME));
  assert.throws(() => frames.parseData(new Uint8Array(11)), { code: 'decode' });
  assert.throws(() => frames.parseData(hex('00 00 00 01 00 20 00 00 00 00 00 00')), { code: 'decode' }); // 2^53
});

test(`a queue of bytes is a queue, seed ${seed}`, () => {
  const next = random(seed), q = new ByteQueue();
  const model = [];
  for (let i = 0; i < 5000; i++) {
    const n = Math.floor(next() * (next() < 0.05 ? 5000 : 40));
    if (next() < 0.5) {
      const bytes = Uint8Array.from({ length: n }, () => next() * 256);
      q.add(bytes);
      model.push(...bytes);
    } else {
      q.take(n);
      model.splice(0, n);
    }
    assert.equal(q.length, model.length);
    assert.deepEqual([...q.peek(1, 30)], model.slice(1, 30));
  }
});
