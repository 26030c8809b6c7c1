import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

import { defineConfig, type Plugin } from 'vite';

const SMALL = 1024; // bytes, below which compression saves no packet

// compressed puts NAME.br and NAME.gz beside each file that is text: the proxy sends one
// of them to a browser that takes it.
function compressed(): Plugin {
  return {
    name: 'compressed',
    apply: 'build',
    enforce: 'post',
    generateBundle: {
      order: 'post',
      handler(_, bundle) {
        for (const [fileName, file] of Object.entries(bundle)) {
          const source = Buffer.from(file.type === 'chunk' ? file.code : file.source);
          if (!/\.(js|css|html|svg)$/.test(fileName) || source.length < SMALL) continue;
          this.emitFile({ type: 'asset', fileName: `${fileName}.br`, source: brotliCompressSync(source, { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } }) });
          this.emitFile({ type: 'asset', fileName: `${fileName}.gz`, source: gzipSync(source, { level: constants.Z_BEST_COMPRESSION }) });
        }
      },
    },
  };
}

// What is built is served by the proxy as it is: no inline script, no inline style,
// nothing from elsewhere. Names carry a hash, so that they may be cached for ever.
export default defineConfig({
  base: '/',
  plugins: [compressed()],
  build: {
    target: 'es2022',
    assetsInlineLimit: 0, // no data: URLs
    license: { fileName: 'licenses.md' }, // of what is in it
    rolldownOptions: { checks: { pluginTimings: false } }, // compression takes most of the time
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 1024, // kB: xterm.js is most of it
  },
});
