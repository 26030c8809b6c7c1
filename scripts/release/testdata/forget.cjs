// Makes the npm client forget its offset, as a client with a mistake could: after a lost connection, its attachments do
// not resume, and show the session as if they were new. node --require loads it before the sample app.

const { Attachment } = require(require.resolve('holdfast', { paths: [process.cwd()] }))

const { serve } = Attachment.prototype
Attachment.prototype.serve = function (...args) {
  this.pos.resume = (spec) => ({ ...spec, resume: undefined })
  return serve.apply(this, args)
}
