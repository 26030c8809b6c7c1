import { defineConfig } from 'vite';

// What is built is served by the proxy as it is: no inline script, no inline style,
// nothing from elsewhere. Names carry a hash, so that they may be cached for ever.
export default defineConfig({
  base: '/',
  build: {
    target: 'es2022',
    assetsInlineLimit: 0, // no data: URLs
    license: { fileName: 'licenses.md' }, // of what is in it
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1024, // kB: xterm.js is most of it
  },
});
