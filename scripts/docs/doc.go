// Package docs holds README.md and .github/docs to what they say: their commands
// and programs are run, their links lead somewhere, and what has to be listed is.
//
// A fenced block of sh, go, js or python runs, those of a page in their order and
// in one world. What a comment right above it may say:
//
//	<!-- not run: WHY -->    it does not run
//	<!-- file: NAME -->      it is kept as NAME for a later block of the page; of
//	                         Go, the program that is built of it
//	<!-- first: COMMAND -->  what runs before it, unseen by the reader
//	<!-- needs: COMMAND -->  without which it is not run, nor what follows on the page
//	<!-- in: source -->      it runs in the directory of the sources
//
// A text block behind it is what it must print, in which … stands for anything.
// Go that is no whole program is compiled alone.
//
// Invariant: no process and no file of a page outlives its test.
//
// Not here: whether the product keeps its word (scripts/e2e and scripts/cli).
package docs
