//! Generator of XMark documents: an auction site of any size.
