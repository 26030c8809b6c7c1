package keyname

import "testing"

// Whether a name is a key does not depend on the modes of the terminal.
func TestCheck(t *testing.T) {
	for name, want := range map[string]bool{"Enter": true, "C-c": true, "M-S-Up": true, "世": true, "": false, "Hyper": false, "C-Enter": false, "S-M-Tab": false} {
		for _, modes := range []Modes{{}, {ApplicationCursor: true}, {NewLine: true}} {
			if _, err := Encode([]string{name}, modes); (err == nil) != want {
				t.Errorf("%q in the modes %+v: %v, want %v", name, modes, err, want)
			}
		}
		if err := Check([]string{"x", name}); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}
