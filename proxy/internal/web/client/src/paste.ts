/**
 * pasteText returns the text without control characters except tabs and line ends. Otherwise an ESC in the text could
 * begin the sequence that ends a paste, and the program would execute the text after it.
 */
export function pasteText(text: string): string {
  return text.replaceAll(/[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g, '');
}

/** The members of ClipboardEvent, DragEvent and InputEvent that are used here. */
interface PasteEvent {
  readonly clipboardData?: { getData(type: string): string } | null;
  readonly dataTransfer?: { getData(type: string): string; readonly types: readonly string[] } | null;
  readonly inputType?: string;
  readonly data?: string | null;
  preventDefault(): void;
  stopPropagation(): void;
}

/**
 * receivePastes calls paste with each text that is pasted into an element or dropped on it. The listeners of elements
 * within it do not receive these events. The function that it returns removes the listeners.
 */
export function receivePastes(element: EventTarget, paste: (text: string) => void, focus: () => void): () => void {
  const receive = (e: PasteEvent, text: string | null | undefined): void => {
    e.preventDefault();
    e.stopPropagation();
    if (text) paste(text);
  };
  const listeners: [string, (e: PasteEvent) => void][] = [
    ['paste', (e) => receive(e, e.clipboardData?.getData('text/plain'))],
    ['drop', (e) => {
      receive(e, e.dataTransfer?.getData('text/plain'));
      focus();
    }],
    ['dragover', (e) => {
      if (e.dataTransfer?.types.includes('text/plain')) e.preventDefault(); // permits the drop
    }],
    // A browser may insert text without an event paste, as some phones' keyboards do.
    ['beforeinput', (e) => {
      if (/^insertFrom(Paste|Drop|Yank)/.test(e.inputType ?? '')) receive(e, e.data);
    }],
  ];
  const undo = listeners.map(([type, listener]) => {
    const heard = (e: Event): void => listener(e as unknown as PasteEvent);
    element.addEventListener(type, heard, { capture: true });
    return () => element.removeEventListener(type, heard, { capture: true });
  });
  return () => {
    for (const f of undo) f();
  };
}
