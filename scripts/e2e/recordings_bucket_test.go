package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/proxy/client"
	"holdfast/shared/testkit"
	"holdfast/shared/testkit/s3server"
)

// A session is recorded to a real S3 server, which is killed and started again, and by two proxies, of which
// the first is killed. Session and proxy must work meanwhile, the recording must lack no byte, and the server
// must store only encrypted segments.
func TestRecordingsInBucket(t *testing.T) {
	t.Parallel()
	server := s3server.Start(t)
	const identity = "AGE-SECRET-KEY-1NSY2NWK7ZDLT5XZCZ3P6S9NPKA4LSP63V63P7TMY9G7YQN4JXFGSX7Z3TE" // only this test uses this key
	dir := t.TempDir()
	key, credentials := filepath.Join(dir, "key"), filepath.Join(dir, "credentials")
	profile := "[default]\naws_access_key_id = " + s3server.KeyID + "\naws_secret_access_key = " + s3server.Secret + "\n"
	testkit.Must(t, errors.Join(os.WriteFile(key, []byte(identity), 0o600), os.WriteFile(credentials, []byte(profile), 0o600)))
	w := newWorld(t, "HOLDFAST_RECORDINGS=s3://"+s3server.Bucket+"/of/hosts", "HOLDFAST_RECORDINGS_ENDPOINT="+server.Endpoint(),
		"HOLDFAST_DURABLE_KEY="+key, "AWS_SHARED_CREDENTIALS_FILE="+credentials)
	c := w.dial(client.Options{})
	loud := role("counter", "1s")
	loud.Labels = map[string]string{"record": "true"}
	w.spawn(c, "loud", loud)
	printed := func() uint64 {
		t.Helper()
		s, err := c.SessionInfo(w.ctx(), "loud")
		testkit.Must(t, err)
		return s.OutputOffset
	}
	name, end := "", uint64(0)
	isRecorded := func(offset uint64) func() bool {
		return func() bool {
			name, end = w.recordingEnd()
			return end > offset
		}
	}
	testkit.Eventually(t, limit, isRecorded(0), "the session is recorded")

	finding := func() string {
		for line := range strings.Lines(w.Run("proxy", "doctor").Out) {
			if words := strings.Fields(line); len(words) > 2 && words[1] == "bucket" {
				return strings.Join(words, " ")
			}
		}
		return ""
	}
	if got := finding(); got != "ok bucket recordings can be stored, read and deleted there" {
		t.Errorf("the doctor says %q", got)
	}
	server.Kill()
	if got := finding(); !strings.HasPrefix(got, "warning bucket") || !strings.Contains(got, "s3://recordings/of/hosts/") {
		t.Errorf("without the server, the doctor says %q", got)
	}
	testkit.Eventually(t, limit, func() bool { return strings.Contains(w.Logs(), "recordings cannot be stored") }, "the log contains the error of the store")
	if r := w.Run("proxy", "verify"); r.Code == 0 || !strings.Contains(r.Errout, "list s3://recordings/of/hosts/") {
		t.Errorf("verify without the server: %v", r)
	}
	before := printed()
	testkit.Eventually(t, limit, func() bool { return printed() > before+20_000 }, "the session continues to print")
	w.spawn(c, "another", role("counter", "1s"))
	server.Restart()
	testkit.Eventually(t, limit, isRecorded(printed()), "the session is recorded again")

	last := printed()
	if err := c.Close(); err != nil { // the client would start a proxy again
		t.Error(err)
	}
	w.Kill(w.Only("proxy"))
	_, end = w.recordingEnd()
	t.Logf("the first proxy has recorded %d of %d bytes", end, last)
	if r := w.Run("proxy", "verify", name); r.Code != 0 || !strings.HasPrefix(r.Out, fmt.Sprintf("%s: open, output 0-%d, the last of it printed at ", name, end)) {
		t.Errorf("verify after the first proxy: %v", r)
	}
	if out := w.Must("proxy", "replay", name, "--output"); out != counterOutput(end) {
		t.Errorf("the %d bytes of recorded output differ from the printed bytes", len(out))
	}

	w.Must("proxy", "kill", "loud") // kill starts the second proxy
	testkit.Eventually(t, limit, func() bool { return strings.Contains(w.Must("proxy", "recordings"), "complete") }, "the recording is complete")
	_, end = w.recordingEnd()
	if r := w.Run("proxy", "verify"); r.Code != 0 || r.Out != fmt.Sprintf("%s: complete, output 0-%d\n", name, end) || end < last {
		t.Errorf("verify after the end: %v", r)
	}
	if out := w.Must("proxy", "replay", name, "--output"); out != counterOutput(end) {
		t.Errorf("the %d bytes of recorded output differ from the printed bytes", len(out))
	}
	if out := w.Must("proxy", "replay", name, "--at", "25"); out != "00000000\n00000001\n00000\n" {
		t.Errorf("the screen at offset 25 is %q", out)
	}

	segments := 0
	err := filepath.WalkDir(filepath.Join(server.Dir, s3server.Bucket, "of"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "index.json" {
			return err
		}
		segments++
		data, err := os.ReadFile(path)
		if !strings.HasSuffix(path, ".zst.age") || !bytes.HasPrefix(data, []byte("age-encryption.org/v1")) {
			t.Errorf("%s is not encrypted", path)
		}
		return err
	})
	if err != nil || segments < 3 {
		t.Errorf("the server has %d segments, %v", segments, err)
	}
	if logs := w.Logs(); strings.Contains(logs, s3server.Secret) || strings.Contains(logs, identity) {
		t.Error("a log contains a secret")
	}
}
