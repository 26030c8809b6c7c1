// The terminal's colours. Each of the sixteen colours, except the one like the background, has a contrast of at least
// 4.5 to the background.

import type { ITheme } from '@xterm/xterm';

export const dark: ITheme = {
  background: '#14171a', foreground: '#dfe3e6', cursor: '#7ab0ff', cursorAccent: '#14171a', selectionBackground: '#33507a', selectionInactiveBackground: '#2c3642',
  black: '#22272c', red: '#ff7b72', green: '#7ccf8a', yellow: '#e3b65f', blue: '#7ab0ff', magenta: '#d2a8ff', cyan: '#6cc7d1', white: '#cfd5da',
  brightBlack: '#8b959e', brightRed: '#ffa198', brightGreen: '#9be0a6', brightYellow: '#f0cf8a', brightBlue: '#a3caff', brightMagenta: '#e0c4ff', brightCyan: '#97dde5', brightWhite: '#ffffff',
  scrollbarSliderBackground: '#8b959e55', scrollbarSliderHoverBackground: '#8b959e88', scrollbarSliderActiveBackground: '#8b959eaa',
};

export const light: ITheme = {
  background: '#ffffff', foreground: '#1d2125', cursor: '#1f5fbf', cursorAccent: '#ffffff', selectionBackground: '#bcd6fb', selectionInactiveBackground: '#dde5ee',
  black: '#1d2125', red: '#b3261e', green: '#1a6f3c', yellow: '#7a5600', blue: '#1f5fbf', magenta: '#8a3ab9', cyan: '#0e6b78', white: '#5a626a',
  brightBlack: '#626b74', brightRed: '#c4342b', brightGreen: '#237a46', brightYellow: '#855f08', brightBlue: '#2a69c9', brightMagenta: '#9546c4', brightCyan: '#187583', brightWhite: '#3c444b',
  scrollbarSliderBackground: '#5a626a44', scrollbarSliderHoverBackground: '#5a626a77', scrollbarSliderActiveBackground: '#5a626a99',
};
