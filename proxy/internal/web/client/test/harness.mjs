// The harness of this client for the conformance suite; proxy/internal/conformance/README.md describes it.

import { createInterface } from 'node:readline';
import WebSocket from 'ws';
import { HoldfastClient } from '../dist/index.js';

const redial = { min: 10, max: 200 };
let client, attachment;

const emit = (event, fields = {}) => process.stdout.write(`${JSON.stringify({ event, ...fields })}\n`);
const bytes = (data) => Buffer.from(data).toString('base64');
const failed = (of, err, fields = {}) => emit('failed', { of, code: err.code ?? String(err), ...fields });

const commands = {
  async connect({ socket, url }) {
    client = await HoldfastClient.connect({ ...(url === undefined ? { socketPath: socket } : { url, WebSocket }), redial, client: 'npm harness' });
    emit('connected');
  },
  async spawn({ session_id, argv }) {
    const { session } = await client.spawn({ session_id, argv });
    emit('spawned', { session_id, instance: session.instance });
  },
  async info({ session_id }) {
    emit('info', { session_id, pid: (await client.info(session_id)).pid });
  },
  async attach({ session_id, instance, offset, writer, view, cols, rows }) {
    const a = await client.attach(session_id, {
      ...(offset !== undefined && { resume: { instance, offset } }), ...(writer && { writer }), ...(view && { view }), ...(cols && { cols, rows }),
    });
    attachment = a;
    emit('attached');
    let isOver = false;
    a.on('output', (data, at) => emit('output', { offset: at, data_b64: bytes(data) }));
    a.on('resync', (what) => emit('reset', { missed: what.bytesMissed, screen_only: what.screenOnly }));
    a.on('snapshot', (data) => emit('snapshot', { data_b64: bytes(data) }));
    a.on('view', (data) => emit('view', { data_b64: bytes(data) }));
    a.on('resized', (size) => emit('resized', size));
    a.on('exit', (exit) => emit('exit', { exit_code: exit.exit_code }));
    a.on('stolen', () => emit('stolen'));
    a.on('error', (err) => { // the last event, except for two codes
      if (isOver || err.code === 'line_too_long' || err.code === 'permission_denied') return;
      isOver = true;
      failed('attachment', err);
    });
  },
  async type({ data_b64 }) {
    attachment.write(Buffer.from(data_b64, 'base64'));
  },
  async resize({ cols, rows }) {
    attachment.resize(cols, rows);
  },
  async position() {
    emit('position', { ...attachment.resume, writer: attachment.writer });
  },
  async detach() {
    await attachment.detach();
    emit('detached');
  },
  async close() {
    await client?.close();
    client = attachment = undefined;
    emit('closed');
  },
};

emit('ready', { lacks: [] });
for await (const line of createInterface({ input: process.stdin })) {
  const { do: command, ...fields } = JSON.parse(line);
  const { session_id } = fields;
  commands[command](fields).catch((err) => failed(command, err, command === 'attach' ? {} : { session_id }));
}
process.exit(0);
