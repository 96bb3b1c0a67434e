"""What a method is made of: messages, reactions, nodes, work, mailboxes, topologies."""
