// The npm package holdfast shows and controls the sessions of Holdfast in a browser, in Node and in Electron.
//
// README.md describes how to use it, and protocol/SPEC.md describes the wire.

export { HoldfastClient } from './client.js';
export type { ClientEvents, ClientState, KillOptions, ListOptions, Subscription, WaitOptions } from './client.js';
export type { ConnectOptions, Redial, StartOptions } from './dialer.js';
export { start } from '#programs';
export { Attachment } from './attachment.js';
export type { AttachmentEvents, Resync } from './attachment.js';
export { attach, exitText } from './terminal.js';
export { pasteText, receivePastes } from './paste.js';
export { Widths } from './widths.js';
export type { WidthsTerminal } from './widths.js';
export type { AttachedTerminal, Disposable, Fitter, TerminalLike, TerminalOptions } from './terminal.js';
export { HoldfastError } from './errors.js';
export { GateDirectory } from './gatesocket.js';
export type { HostInfo, SessionFilter, SessionRow } from './gatesocket.js';
export { parseGate } from './transport.js';
export type { GateOptions, GateSocketOptions, SSHOptions, Transport, TransportHandler, WebSocketConstructor, WebSocketLike } from './transport.js';
export type * from './types.js';
