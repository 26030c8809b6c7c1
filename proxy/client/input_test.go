package client

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"holdfast/shared/testkit"
)

// Input is sent in order and trimmed as the vectors tell, which are for clients in all languages.
func TestInputBuffer(t *testing.T) {
	type part struct {
		Offset uint64
		Data   string
	}
	var vectors struct {
		Inputs []struct {
			Name  string
			Steps []struct {
				Attached, Accepted, Resumed *uint64
				Type                        string
				Sends                       *[]part
			}
		}
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "protocol", "testdata", "client-v1.json"))
	testkit.Must(t, err)
	testkit.Must(t, json.Unmarshal(b, &vectors))
	if len(vectors.Inputs) == 0 {
		t.Fatal("there are no inputs")
	}
	for _, v := range vectors.Inputs {
		t.Run(v.Name, func(t *testing.T) {
			var in inputBuffer
			for i, s := range v.Steps {
				switch {
				case s.Attached != nil:
					in.resume(*s.Attached, true)
				case s.Resumed != nil:
					in.resume(*s.Resumed, false)
				case s.Accepted != nil:
					in.accepted(*s.Accepted)
				case s.Sends == nil:
					in.Add([]byte(s.Type))
				default:
					got := []part{}
					for data, offset := in.next(); len(data) > 0; data, offset = in.next() {
						got = append(got, part{offset, string(data)})
					}
					equal(t, "frames of step "+string(rune('0'+i)), got, *s.Sends)
				}
			}
		})
	}
}
