package operate

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"holdfast/proxy/internal/exitcode"
	"holdfast/shared/sysexits"
)

// A proxy that was built without the page is recognized before a browser is opened.
func TestCheckBuilt(t *testing.T) {
	for _, tt := range []struct {
		status int
		want   error
	}{{http.StatusNotImplemented, errNotBuilt}, {http.StatusOK, nil}, {http.StatusUnauthorized, nil}} {
		s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodHead {
				t.Errorf("the method is %s, which may use up a ticket", r.Method)
			}
			rw.WriteHeader(tt.status)
		}))
		address := strings.TrimPrefix(s.URL, "http://")
		if err := checkBuilt(context.Background(), address); !errors.Is(err, tt.want) {
			t.Errorf("%d: %v", tt.status, err)
		}
		s.Close()
		if err := checkBuilt(context.Background(), address); err != nil {
			t.Errorf("no process listens: %v", err)
		}
	}
	var exit *exitcode.Error
	if !errors.As(errNotBuilt, &exit) || exit.Code != sysexits.Unavailable || !strings.Contains(exit.Error(), "scripts/web") {
		t.Errorf("%v", errNotBuilt)
	}
}
