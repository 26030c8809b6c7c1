package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"holdfast/proxy/client"
	"holdfast/proxy/internal/handoff"
	"holdfast/shared/config"
	"holdfast/shared/pipe"
)

func (a *app) webCommand() *cobra.Command {
	noOpen := false
	cmd := a.jsonFlag(&cobra.Command{
		Use:   "web",
		Short: "Open the web page in a browser, or print a link to it",
		Long: "Open the web page of the running proxy in a browser. The link is good once, for\n" +
			"30 seconds; the browser stays signed in for a week after its last visit. Where no\n" +
			"browser can be opened, the link is printed.\n\n" +
			"Where the proxy serves no page, another takes over from it that does, on a port of\n" +
			"127.0.0.1 that is free; no client notices. It stays there, also when a proxy dies,\n" +
			"until proxy stop. To have it always, set web in the settings (HOLDFAST_WEB).",
		Example: "  proxy web\n  proxy web --no-open",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withStarted(cmd.Context(), func(c *client.Client) error {
				l, err := pageLink(cmd.Context(), c)
				if errors.Is(err, errNoPage) && a.proxy == config.DefaultProxy && !pipe.Here {
					warn(errors.New("this proxy serves no page: another takes over, which does"))
					o := handoffOptions{timeout: handoff.Timeout, quiet: true, web: anyPort}
					if err := a.handoff(cmd.Context(), &o); err != nil {
						return err
					}
					l, err = pageLink(cmd.Context(), c)
				}
				if err != nil {
					return err
				}
				l.Opened = !noOpen && openBrowser(l.URL)
				if a.json {
					return printJSON(cmd, l)
				}
				return l.print(cmd.OutOrStdout())
			})
		},
	})
	cmd.Flags().BoolVar(&noOpen, "no-open", false, "print the link, and open nothing")
	return cmd
}

// anyPort is where the page is served that nobody has said a place for.
const anyPort = "127.0.0.1:0"

var errNoPage error = &exitError{exitUnavailable, "this proxy serves no web page: set web in the settings (HOLDFAST_WEB), then proxy --handoff; or proxy web"}

// A webLink lets a browser in, once.
type webLink struct {
	URL     string `json:"url"`
	Opened  bool   `json:"opened"` // by a browser, which has used it up
	address string
}

func (l *webLink) print(out io.Writer) error {
	text := l.URL
	if l.Opened {
		text = "opened " + l.address
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

func pageLink(ctx context.Context, c *client.Client) (*webLink, error) {
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	if s.Web == "" {
		return nil, errNoPage
	}
	ticket, err := c.Ticket(ctx, "")
	if err != nil {
		return nil, err
	}
	return &webLink{URL: pageURL(s.Web, ticket), address: "http://" + s.Web + "/"}, nil
}

func pageURL(address, ticket string) string { return "http://" + address + "/?ticket=" + ticket }

// openTime is how long a program that opens browsers may take to say that it
// cannot.
const openTime = 2 * time.Second

// openBrowser reports whether a browser shows a page, as far as that can be known.
func openBrowser(url string) bool {
	var args []string
	switch runtime.GOOS {
	case "darwin":
		args = []string{"open", url}
	case "windows":
		args = []string{"rundll32", "url.dll,FileProtocolHandler", url}
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return false
		}
		args = []string{"xdg-open", url}
	}
	cmd := exec.Command(args[0], args[1:]...)
	if cmd.Start() != nil {
		return false
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		return err == nil
	case <-time.After(openTime): // it may be the browser itself
		return true
	}
}

// greet says on a terminal where the page is. The link is a secret while it is good,
// so that no log gets it, nor what is no terminal: that may be a log as well.
func (s *serving) greet(out *os.File) {
	if s.listeners.tcp == nil || !isTerminal(out) {
		return
	}
	address := s.listeners.tcp.Addr().String()
	ticket, err := s.server.StartTicket()
	if err != nil {
		s.log.Warn().Err(err).Msg("no link to the page")
		return
	}
	fmt.Fprintf(out, "web page    %s\n            good once, for 10 minutes; proxy web gives another\n", pageURL(address, ticket))
}
