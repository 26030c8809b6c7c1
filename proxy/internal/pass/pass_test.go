package pass

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/protocol"
	"holdfast/proxy/policy"
)

var (
	now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	who = &policy.Principal{User: "ann", Workspace: "a", Roles: []string{"x"}}
)

func seal(t testing.TB, k *Key, p Pass) string {
	t.Helper()
	text, err := k.Seal(p)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestPass(t *testing.T) {
	k := NewKey("secret")
	page := Pass{Kind: Page, Port: 7681, Expires: now.Add(time.Hour), Principal: who}
	share := Pass{Kind: Share, Session: "s", Instance: "i", Expires: now.Add(time.Hour)}
	for _, want := range []Pass{page, share} {
		text := seal(t, k, want)
		got, err := NewKey("secret").Open(text, want.Kind, now)
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("opened %+v, %v, want %+v", got, err, want)
		}
		if strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			t.Errorf("%s has characters that a URL or a cookie cannot have", text)
		}
	}
	text := seal(t, k, page)
	parts := strings.Split(text, ".")
	raised, _ := json.Marshal(Pass{Kind: Page, Port: 7681, Expires: now.Add(time.Hour), Principal: &policy.Principal{All: true}})
	for name, forged := range map[string]string{
		"nothing":          "",
		"dots":             "..",
		"without a mac":    parts[0] + "." + parts[1] + ".",
		"another payload":  parts[0] + "." + encoding.EncodeToString(raised) + "." + parts[2],
		"another version":  "2." + parts[1] + "." + parts[2],
		"another key's":    seal(t, NewKey("other"), page),
		"another kind":     seal(t, k, share),
		"part of a mac":    text[:len(text)-2],
		"more":             text + "A",
		"padded":           text + "=",
		"with line breaks": text[:len(text)-4] + "\n\n\r\n" + text[len(text)-4:],
		"too long":         text + strings.Repeat("A", maxLen),
		"signed, no pass":  "1.AAAA." + encoding.EncodeToString(k.mac("1.AAAA")),
		"signed, no text":  "1.!." + encoding.EncodeToString(k.mac("1.!")),
		"signed, a future": "2.e30." + encoding.EncodeToString(k.mac("2.e30")),
	} {
		if p, err := k.Open(forged, Page, now); err == nil || errors.Is(err, errExpired) || p != nil {
			t.Errorf("%s: opened %+v, %v", name, p, err)
		}
	}
	for at, good := range map[time.Time]bool{now.Add(time.Hour - time.Second): true, now.Add(time.Hour): false, now.Add(24 * time.Hour): false} {
		if _, err := k.Open(text, Page, at); (err == nil) != good || !good && !errors.Is(err, errExpired) {
			t.Errorf("at %v: %v", at, err)
		}
	}
}

func TestNoKey(t *testing.T) {
	k := NewKey("")
	if _, err := k.Seal(Pass{}); protocol.CodeOf(err) != protocol.CodeUnsupported {
		t.Errorf("sealed without a key: %v", err)
	}
	if _, err := k.Open(seal(t, NewKey("x"), Pass{Kind: Page, Expires: now.Add(1)}), Page, now); err == nil {
		t.Error("opened without a key")
	}
}

// The fingerprint tells keys apart, and is of no use without the key.
func TestFingerprint(t *testing.T) {
	k := NewKey("secret")
	if got := k.Fingerprint(); got == "" || got != NewKey("secret").Fingerprint() || got == NewKey("other").Fingerprint() {
		t.Errorf("the fingerprint is %q", got)
	}
	if got := NewKey("").Fingerprint(); got != "" {
		t.Errorf("the fingerprint of no key is %q", got)
	}
}

func TestTooMuch(t *testing.T) {
	roles := make([]string, 64)
	for i := range roles {
		roles[i] = strings.Repeat("r", 256)
	}
	if _, err := NewKey("x").Seal(Pass{Principal: &policy.Principal{Roles: roles}}); protocol.CodeOf(err) != protocol.CodeLimitExceeded {
		t.Errorf("sealed: %v", err)
	}
}

// FuzzOpen checks that Open accepts no text that was not sealed.
func FuzzOpen(f *testing.F) {
	k := NewKey("secret")
	good := seal(f, k, Pass{Kind: Page, Port: 1, Expires: now.Add(time.Hour), Principal: who})
	for _, s := range []string{good, good[:40], "1..", "1.e30.AAAA", "", strings.ToUpper(good), good + "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, kind := range []Kind{Page, Share} {
			if p, err := k.Open(text, kind, now); err == nil && (text != good || kind != Page) {
				t.Errorf("%q opened as %s: %+v", text, kind, p)
			}
		}
	})
}
