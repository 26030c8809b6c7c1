// The vectors that clients in all languages must satisfy.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { FrameReader, MAX_FRAME } from '../dist/frames.js';
import { InputBuffer } from '../dist/input.js';
import { Position } from '../dist/position.js';

const { positions, inputs, frames } = JSON.parse(readFileSync(new URL('../../../../../protocol/testdata/client-v1.json', import.meta.url)));
const decoder = new TextDecoder(), encoder = new TextEncoder();

for (const { name, steps, resume } of positions) {
  test(`position: ${name}`, () => {
    const p = new Position();
    for (const s of steps) {
      if (s.attached) {
        const { resume: at, offset, bytes_missed = 0, snapshot_bytes = 0 } = s.attached;
        p.attached('i', offset, bytes_missed, snapshot_bytes, false, at === undefined ? undefined : { instance: 'i', offset: at });
      } else if (s.output) p.output(s.output.offset, s.output.bytes);
      else if (s.resync) p.resync(s.resync.offset, s.resync.bytes_missed ?? 0, s.resync.snapshot_bytes ?? 0, s.resync.view ?? false);
      else if (s.view) p.viewed(s.view);
      else p.snapshot(s.snapshot);
    }
    const got = p.resume({ steal: true }, false);
    assert.deepEqual({ offset: got.resume.offset, snapshot: got.snapshot, screen_only: got.screen_only, steal: got.steal },
      { snapshot: false, screen_only: false, steal: false, ...resume });
  });
}

for (const { name, steps } of inputs) {
  test(`input: ${name}`, () => {
    const input = new InputBuffer();
    for (const s of steps) {
      if (s.attached !== undefined) input.resume(s.attached, true);
      else if (s.resumed !== undefined) input.resume(s.resumed, false);
      else if (s.accepted !== undefined) input.accepted(s.accepted);
      else if (s.type !== undefined) input.add(encoder.encode(s.type));
      else {
        const got = [];
        for (let part = input.next(); part !== undefined; part = input.next()) got.push({ offset: part.offset, data: decoder.decode(part.data) });
        assert.deepEqual(got, s.sends);
      }
    }
  });
}

for (const { name, pieces, frames: want, error } of frames) {
  test(`frames: ${name}`, () => {
    const reader = new FrameReader(), got = [];
    reader.max = MAX_FRAME;
    const read = () => {
      for (const piece of pieces) reader.read(Buffer.from(piece, 'hex'), (kind, payload) => got.push({ kind, payload: Buffer.from(payload).toString('hex') }));
    };
    if (error) assert.throws(read, { code: 'decode' });
    else read();
    assert.deepEqual(got, want);
  });
}
