package palette

import "testing"

func TestRGB(t *testing.T) {
	for n, want := range map[int]uint32{
		0: 0x2e3436, 15: 0xeeeeec, 16: 0, 17: 0x00005f, 21: 0x0000ff, 196: 0xff0000, 231: 0xffffff, 232: 0x080808, 255: 0xeeeeee,
	} {
		if got := RGB(n); got != want {
			t.Errorf("colour %d: got %06x, want %06x", n, got, want)
		}
	}
}
