package web

import (
	"crypto/sha1" // RFC 6455 demands it for the handshake; security does not depend on it
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"holdfast/protocol"
)

// checkUpgrade returns a refusal unless the headers begin a WebSocket.
func checkUpgrade(h http.Header) error {
	key, err := base64.StdEncoding.DecodeString(h.Get("Sec-Websocket-Key"))
	switch {
	case !hasToken(h, "Connection", "upgrade") || !hasToken(h, "Upgrade", "websocket"):
		return refuse(http.StatusUpgradeRequired, protocol.CodeInvalidArgument, "this path needs a WebSocket handshake: send Connection: Upgrade and Upgrade: websocket")
	case h.Get("Sec-Websocket-Version") != "13":
		return refuse(http.StatusUpgradeRequired, protocol.CodeInvalidArgument, "the WebSocket version must be 13")
	case err != nil || len(key) != 16 || len(h["Sec-Websocket-Key"]) != 1:
		return refuse(http.StatusBadRequest, protocol.CodeInvalidArgument, "Sec-WebSocket-Key must be 16 bytes in base64")
	}
	return nil
}

// hasToken reports whether the header, which is a comma-separated list, contains the token.
func hasToken(h http.Header, name, token string) bool {
	return slices.ContainsFunc(h[name], func(line string) bool {
		return slices.ContainsFunc(strings.Split(line, ","), func(t string) bool {
			return strings.EqualFold(strings.TrimSpace(t), token)
		})
	})
}

// upgrade answers a WebSocket handshake that checkUpgrade has accepted. It accepts no extension,
// so messages are not compressed.
func upgrade(r *request, subprotocol string) (*socket, error) {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	answer := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n"
	if subprotocol != "" {
		answer += "Sec-WebSocket-Protocol: " + subprotocol + "\r\n"
	}
	_ = r.nc.SetWriteDeadline(time.Now().Add(headTimeout)) // Write returns the error
	if _, err := r.nc.Write([]byte(answer + "\r\n")); err != nil {
		return nil, fmt.Errorf("answer a WebSocket's handshake: %w", err)
	}
	if err := r.nc.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("answer a WebSocket's handshake: %w", err)
	}
	return newSocket(r.nc, r.remainder), nil
}
