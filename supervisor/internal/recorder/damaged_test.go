package recorder

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"holdfast/shared/testkit"
	"holdfast/supervisor/internal/past"
)

// A recorder that continues a life whose last segment is damaged at its beginning stores the output of the ring again. It also continues
// a life that the store believes to be one byte longer than the session is.
func TestDamagedBeginning(t *testing.T) {
	for _, isSilent := range []bool{false, true} {
		dir := t.TempDir()
		first, s := newRecorder(t, dir)
		p := newTape(t, "one")
		p.print([]byte("some output\r\n"))
		first.Add(p, past.Full)
		await(t, s, p)
		testkit.Must(t, first.Close(limit))
		path := filepath.Join(dir, p.life.String(), fmt.Sprintf("%019d", 0))
		content, err := os.ReadFile(path)
		testkit.Must(t, err)
		content[30] ^= 1
		testkit.Must(t, os.WriteFile(path, content, 0o600))
		text := p.text
		if isSilent { // the output of the session ends where the file begins
			p = newTape(t, "one")
		}
		next, _ := newRecorder(t, dir)
		next.Add(p, past.Full)
		kept := filepath.Join(dir, p.life.String(), fmt.Sprintf("%019d-%019d", 0, 1))
		testkit.Eventually(t, limit, func() bool { _, err := os.Stat(kept); return err == nil }, "the recording is open")
		p.print(text)
		await(t, s, p)
		r, err := s.Open(p.life)
		testkit.Must(t, err)
		var got []byte
		for piece, err := range r.Range(1, uint64(len(p.text))) {
			if err != nil || piece.Missing > 0 {
				t.Errorf("silent %v: piece %+v, %v", isSilent, piece, err)
			}
			got = append(got, piece.Output...)
		}
		if string(got) != string(p.text[1:]) {
			t.Errorf("silent %v: %q is stored of %q", isSilent, got, p.text)
		}
		select {
		case err := <-p.failed:
			t.Errorf("silent %v: %v", isSilent, err)
		default:
		}
	}
}
