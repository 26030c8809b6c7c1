// Package docs checks README.md and .github/docs: it runs their commands and programs, follows their
// links, and compares their tables with the code.
//
// A fenced block of sh, go, js or python is run. The blocks of a page are run in their order and in
// one world. A comment directly above a block may be:
//
//	<!-- not run: WHY -->    the block is not run
//	<!-- file: NAME -->      the block is stored as NAME for a later block of the page; Go is built
//	                         first, and the program is stored
//	<!-- first: COMMAND -->  COMMAND runs before the block; the page does not show it
//	<!-- needs: COMMAND -->  if COMMAND fails, the block and the rest of the page are not run
//	<!-- in: source -->      the block is run in the directory of the sources
//
// If a text block follows, the block must print this text, in which … matches any text. If a block
// of Go is not a whole program, it is only compiled.
//
// Invariant: no process and no file of a page may outlive its test.
//
// Not here: tests of the product itself (scripts/e2e and scripts/cli).
package docs
