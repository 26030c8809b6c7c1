package config

import "testing"

func TestRecordingsBucket(t *testing.T) {
	t.Parallel()
	for place, want := range map[string]string{
		"":                             "",
		"/directory":                   "",
		"s3://bucket":                  "bucket ",
		"s3://bucket/":                 "bucket ",
		"s3://a.b-c/with/a prefix/":    "a.b-c with/a prefix",
		"directory":                    "error",
		"s3://":                        "error",
		"s3://b":                       "error",
		"s3://Bucket":                  "error",
		"s3://a..b":                    "error",
		"s3://bucket/../x":             "error",
		"s3://bucket/.":                "error",
		"https://bucket.s3.aws.com/ab": "error",
	} {
		c := Config{Recordings: place}.withDefaults()
		got := "error"
		if c.validate() == nil {
			got = ""
			if b := c.RecordingsBucket(); b != nil {
				got = b.Name + " " + b.Prefix
			}
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", place, got, want)
		}
	}
	for endpoint, want := range map[string]string{
		"":                        "https://s3.amazonaws.com",
		"https://s3.example:9000": "https://s3.example:9000",
		"https://10.0.0.1/":       "https://10.0.0.1",
		"http://localhost:9000":   "http://localhost:9000",
		"http://127.0.0.2":        "http://127.0.0.2",
		"http://10.0.0.1":         "error",
		"http://s3.example":       "error",
		"s3.example":              "error",
		"https://":                "error",
		"https://u:p@s3.example":  "error",
		"https://s3.example/path": "error",
		"https://s3.example?a=b":  "error",
		"ftp://s3.example":        "error",
	} {
		c := Config{Recordings: "s3://bucket", RecordingsEndpoint: endpoint}.withDefaults()
		got := "error"
		if c.validate() == nil {
			got = c.RecordingsBucket().Endpoint.String()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", endpoint, got, want)
		}
	}
}
