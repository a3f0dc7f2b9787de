//! Streaming sends (SDR-RDMA 3.1.2): the application sends the chunks of a message in any order, and
//! repeats any of them. The queue pair retransmits nothing.

use super::{Outgoing, Position, SendSide};
use crate::modes::Mode;
use crate::qp::error::PostSendError;
use crate::qp::user_send::SendId;
use lacuna_place::buffer::SendBuffer;

impl SendSide {
    /// Opens a streaming send to the next receive.
    pub(crate) fn open_stream(&mut self, immediate: Option<u32>) -> Result<SendId, PostSendError> {
        self.check(immediate)?;
        if self.is_one_sided {
            return Err(PostSendError::OneSided);
        }
        let receive = self.next_receive()?;
        let id = self.sends.admit(0, None);
        self.build_before(receive.first);
        self.take_numbers(id, receive.first, 1);
        if let Some(send) = self.sends.get_mut(id) {
            send.streaming = true;
        }
        self.growing.push((receive.first, id));
        let empty = SendBuffer::from(Vec::new());
        let segment = self.segment(receive.first, empty, (0, None), immediate, None, None);
        let mut machine = Mode::Raw.sender(segment.shape());
        while machine.poll_transmit().is_some() {}
        self.messages.push(receive.first, Outgoing::new(id, machine, segment, 0));
        Ok(id)
    }

    /// Sends `data` at `offset_bytes` of a stream's message. `ends_message` says that the message
    /// ends there.
    pub(crate) fn push_stream(
        &mut self,
        id: SendId,
        offset_bytes: u64,
        data: SendBuffer,
        ends_message: bool,
    ) -> Result<(), PostSendError> {
        let Some(send) = self.sends.stream(id)? else { return Ok(()) };
        let number = send.numbers.start;
        let geometry = self.geometry;
        let len_bytes = data.len() as u64;
        let aligned = offset_bytes.is_multiple_of(geometry.chunk_bytes())
            && (ends_message || len_bytes.is_multiple_of(u64::from(geometry.mtu_bytes())));
        if !aligned {
            let chunk_bytes = geometry.chunk_bytes();
            return Err(PostSendError::Misaligned { offset_bytes, len_bytes, chunk_bytes });
        }
        let end_bytes = offset_bytes.saturating_add(len_bytes);
        let capacity_bytes = match self.peer_receives.next_receive(number) {
            Some(receive) if receive.first == number => receive.capacity_bytes,
            _ => geometry.max_message_bytes(),
        }
        .min(geometry.max_message_bytes());
        if end_bytes > capacity_bytes {
            return Err(PostSendError::TooLong { len_bytes: end_bytes, capacity_bytes });
        }
        let first_packet = (offset_bytes / u64::from(geometry.mtu_bytes())) as u32;
        if first_packet >= geometry.split().packets() {
            // An empty end after the slot's last packet has no packet number. The receiver knows
            // the end by its buffer.
            return Ok(());
        }
        send.len_bytes = send.len_bytes.max(end_bytes);
        let outgoing = self.messages.get_mut(number).ok_or(PostSendError::NoSuchSend)?;
        let immediate = outgoing.segment.as_ref().and_then(|segment| segment.immediate);
        let message_end = ends_message.then_some(end_bytes);
        let place = (first_packet, message_end);
        let segment = self.segment(number, data, place, immediate, None, None);
        let shape = segment.shape();
        let mut end = segment.first_packet + shape.data_packets;
        if ends_message {
            // A message with fewer packets than its immediate has fragments ends with empty
            // packets.
            end = end.max(shape.fragments);
        }
        self.enqueue(&segment, &(segment.first_packet..end), Position::Last);
        Ok(())
    }

    /// Ends a stream; what was pushed is still sent.
    pub(crate) fn end_stream(&mut self, id: SendId) -> Result<(), PostSendError> {
        let Some(send) = self.sends.stream(id)? else { return Ok(()) };
        send.streaming = false;
        let number = send.numbers.start;
        self.check_injected(number);
        Ok(())
    }
}
