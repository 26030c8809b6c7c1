package link

import (
	"testing"
	"time"
	"sync"
	"fmt"
	"holdfast/protocol"
	"holdfast/protocol/link"
)

func TestSpin(t *testing.T) {
	for _, n := range []int{200,200,200,200,200,200,1000,1000,1000,1000,1000,1000,1000,1000,2000,2000,2000,2000} {
		proxy, supervisor := linked(t)
		var wg sync.WaitGroup
		answer(t, supervisor, func(st *Stream, request protocol.Message) {
			_ = st.Send(link.OK{})
			wg.Go(func() { for { if _, err := st.Next(); err != nil { st.Abort(); return } } })
		})
		for range n {
			st, _, err := proxy.Open(soon(t), link.Status{})
			if err != nil { t.Fatal(err) }
			wg.Go(func() { for { if _, err := st.Next(); err != nil { st.Abort(); return } } })
		}
		time.Sleep(50*time.Millisecond)
		begun := time.Now()
		go proxy.Close()
		wg.Wait()
		fmt.Println(n, time.Since(begun))
	}
}
