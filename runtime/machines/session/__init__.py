"""Sessions: conversations that outlive their connections, without loss or repetition. Pure; the same for both planes.

Theory of operation. The client dials (`machine`), the host of the coordinator accepts (`table`). Each side keeps what
it sent until the other acknowledges it. The first message on every connection is `OpenSession`, with the number of
messages received so far; the accepting side lets that connection take over from the one before, and answers with its
own number. Each side then sends what the other lacks.

The drivers are pumps. After each call they carry out the effects, and write what `next_to_send` gives for each of their
connections. What comes in that is no `SessionMessage` is counted by `take`, and theirs to deliver.
"""
